// The end of a process's stderr, kept where its parent finds it.
#pragma once

namespace shoal {

/// For a started process: copies what it writes by C's stderr (fprintf, perror, assert) and by C++'s std::cerr and
/// std::clog into the tail of own_crash_record(), on the way to descriptor 2. That descriptor stays what it is: no pipe, no thread,
/// a terminal stays a terminal, and text is out at once, whoever dies. Not kept: what libraries write by write(2)
/// themselves, wide characters (after fwprintf the C stream is a wide one), what a process writes that the program
/// forks by itself, and a perror() to a terminal before anything else of C's stderr: it opens a stream of its own. It
/// costs the copy of the text, and takes no lock. Called again in a forked child, it changes nothing. Threads: call it
/// while there is one; any may write.
void keep_stderr_tail();

/// Makes in advance what install needs, so that forked children have it from their parent. Does not change where anyone
/// writes. Threads: any.
void prepare_stderr_tail();

}  // namespace shoal
