// The first statement of main().
#pragma once

namespace shoal {

/// The first statement of main() in a program that starts processes, since each started process is this program again.
/// What it does depends on the process:
///
/// - In a child it runs the child's function and never returns.
/// - In the fork server it serves.
/// - In a process that the user started it returns at once. Its only effect is that a ProcessFailed which nobody
///   catches is printed with its report.
/// - In a process that `shoal run` started it joins the launcher's session and returns.
///
/// Make handles after it: if one exists before (at namespace scope, say), starts but by fork throw std::logic_error.
void init(int argc, char** argv);

/// Throws std::logic_error if init() was not called; the text says where the call belongs.
void check_initialized();

}  // namespace shoal
