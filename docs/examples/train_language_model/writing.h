// Text of the network's own.
#pragma once

#include <cstdint>
#include <string>

#include "train_language_model/settings.h"
#include "train_language_model/text.h"
#include "train_language_model/transformer.h"

/// Goes on from the prompt for so many characters, each drawn by the network's scores. The same seed gives the same text.
std::string write_on(Transformer& network, const Text& text, const Settings& settings);
