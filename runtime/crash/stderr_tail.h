// The last words of a process, kept where its parent finds them.
#pragma once

#include <shoal/internal/runtime/crash/record.h>

namespace shoal {

/// In a started process: what it writes by C's stderr (fprintf, perror, assert) and by C++'s std::cerr and std::clog
/// goes into the record's tail on its way to descriptor 2, which stays what it is: no pipe, no thread, a terminal
/// stays a terminal, and what was written is out at once, whoever dies. What libraries write by write(2) itself, and
/// wide characters (fwprintf, after which the C stream is a wide one) are not kept, nor what a process writes that the
/// program forks by itself. Costs the copy of what is written, and takes no lock. Called again in a forked child, it
/// changes to that one's record. Threads: called while there is one; any may write.
void keep_stderr_tail(CrashRecord& record);

/// Makes beforehand what that needs, so that forked children have it from their parent. Changes nothing that anyone
/// writes to. Threads: any.
void prepare_stderr_tail();

}  // namespace shoal
