// Codecs: which types can cross between processes, and how to add one.
#pragma once

#include <shoal/internal/ipc/codec/aggregate.h>
#include <shoal/internal/ipc/codec/base.h>
#include <shoal/internal/ipc/codec/decoder.h>
#include <shoal/internal/ipc/codec/encoder.h>
#include <shoal/internal/ipc/codec/std_types.h>
