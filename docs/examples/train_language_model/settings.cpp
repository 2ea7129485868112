#include "train_language_model/settings.h"

#include <fmt/format.h>

#include <stdexcept>

void Size::validate() const {
  if (width % heads != 0) throw std::invalid_argument(fmt::format("width {} is no multiple of {} heads", width, heads));
}

void Settings::validate() const {
  if (!plots.empty() && log.empty())
    throw std::invalid_argument("--plots is given without --log: pictures are drawn of it");
  if (prompt.empty()) throw std::invalid_argument("--prompt is empty: a text has to begin somehow");
}
