#include "train_fashion_mnist/evaluation.h"

#include <shoal/workers/train/gather_samples.h>

#include <vector>

#include "train_fashion_mnist/learner.h"
#include "train_fashion_mnist/loaders.h"

Evaluation evaluate(Learner& learner, const Data& data, const Group& group) {
  const torch::NoGradGuard no_gradients;
  learner.network()->eval();
  // Begun with none: a rank may have no share of a small test set.
  std::vector<at::Tensor> losses{torch::empty({0})}, answers{torch::empty({0}, at::kLong)};
  const auto share = test_loader(data, group->getSize(), group->getRank());
  for (auto& [images, labels] : *share) {
    const at::Tensor scores = learner.scores(images);
    losses.push_back(torch::cross_entropy_loss(scores, labels, {}, at::Reduction::None));
    answers.push_back(scores.argmax(1));
  }
  learner.network()->train();
  const std::int64_t size = data.test.size();
  const at::Tensor all_losses = shoal::all_gather_samples(group, torch::cat(losses), size);
  const at::Tensor all_answers = shoal::all_gather_samples(group, torch::cat(answers), size);
  const at::Tensor confusion = torch::bincount(data.test.labels * 10 + all_answers, {}, 100).reshape({10, 10});
  return {.loss = all_losses.to(at::kDouble).mean().item<double>(),
          .accuracy = double(confusion.trace().item<std::int64_t>()) / double(size),
          .confusion = confusion};
}
