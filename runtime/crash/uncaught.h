// What is printed when nobody catches the failure of a process.
#pragma once

namespace shoal {

/// Makes std::terminate print the whole report() of a ProcessFailed that ends this process to stderr, before the
/// handler that was there takes its course. A handler that is set later replaces this one. Called by shoal::init.
void report_uncaught_failures();

}  // namespace shoal
