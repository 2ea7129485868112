// What local_rank() is in a process that no launcher has started.
#pragma once

namespace shoal::detail {

/// Whose device a process works for that is no rank itself.
struct WorksFor {
  int rank = -1;           // that started it, or that started whoever did; -1: none
  int worker_number = -1;  // likewise a pool's worker; the environment's variables come before it
};

/// Of the processes that this one starts.
WorksFor children_work_for();
/// Called once, before the process's function, with what the process that started it has for its children.
void set_works_for(const WorksFor& whom);
/// Called once in a pool's worker, before its function: its number among those that run at once.
void set_worker_number(int number);

}  // namespace shoal::detail
