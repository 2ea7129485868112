// Pictures of a training's log.
#pragma once

#include <filesystem>

/// Has training/plot.py draw what the log has into the folder: curves of loss, accuracy and learning rate, a confusion
/// matrix, each an SVG. They cost nothing but Python: a line on stderr says why if there are none, and nothing else happens.
void draw_pictures(const std::filesystem::path& log, const std::filesystem::path& folder);
