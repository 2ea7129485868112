// What ps, top and gdb call this process.
#pragma once

#include <string>

namespace shoal {

/// Of the program, as its user called it: argv[0]. By init.
void note_program_name(const char* name);
const std::string& program_name();

/// In a process that started by exec: the argument that holds its ticket, which nobody needs any more once it is read.
/// Titles are written there.
void note_title_place(char* argument);

/// Names this process: "train/3" (of program train, rank 3) or "train/evaluator" (rank -1), in the 15 characters that
/// the kernel keeps; and on the command line, if that is not a user's own, "trainer 3". While there is one thread.
void set_process_title(const std::string& name, int rank);

}  // namespace shoal
