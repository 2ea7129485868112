// What is printed when nobody catches the failure of a process.
#pragma once

namespace shoal {

/// From now on a ProcessFailed that ends this process in std::terminate is printed with its whole report() to stderr,
/// before the handler that was there takes its course; a handler that is set later replaces this one. By shoal::init.
void report_uncaught_failures();

}  // namespace shoal
