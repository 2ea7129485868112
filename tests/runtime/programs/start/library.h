// Functions of a shared library that processes are started with.
#pragma once

int library_function(int rank, int value);
