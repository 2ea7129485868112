// What can cross between processes, and how a user's type becomes one that can.
#pragma once

#include <shoal/ipc/codec/aggregate.h>
#include <shoal/ipc/codec/base.h>
#include <shoal/ipc/codec/decoder.h>
#include <shoal/ipc/codec/encoder.h>
#include <shoal/ipc/codec/std_types.h>
