#include "train_language_model/writing.h"

#include <algorithm>
#include <stdexcept>

std::string write_on(Transformer& network, const Text& text, const Settings& settings) {
  const torch::NoGradGuard no_gradients;
  network->eval();
  torch::manual_seed(std::int64_t(settings.seed));
  at::Tensor written = text.encode(settings.prompt);
  if (written.numel() == 0)
    throw std::invalid_argument("--prompt '" + settings.prompt + "' has no character that occurs in the text");
  const std::int64_t end = written.numel() + settings.sample;
  while (written.numel() < end) {
    const std::int64_t seen = std::min(written.numel(), settings.size.context);
    const at::Tensor scores = network->forward(written.narrow(0, written.numel() - seen, seen).unsqueeze(0));
    const at::Tensor chances = torch::softmax(scores[0][seen - 1] / settings.temperature, 0);
    written = torch::cat({written, torch::multinomial(chances, 1)});
  }
  network->train();
  return text.decode(written);
}
