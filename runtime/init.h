// The first statement of main().
#pragma once

namespace shoal {

/// Has to be the first statement of main() in a program that starts processes: started ones are this
/// program again. In such a child it runs the child's function and never returns; in the fork server it
/// serves. In a process that the user started it returns at once, having changed nothing but that a ProcessFailed which
/// nobody catches is printed with its report; in one that `shoal run` started, having joined the launcher's session.
/// Handles are made after it: with one from before (at namespace scope, say), starts other than by fork throw Error.
void init(int argc, char** argv);

/// Throws std::logic_error, saying where the call belongs, where init was not called.
void check_initialized();

}  // namespace shoal
