// One of each kind of optimizer that libtorch has fused or foreach forms of, with options that are not its defaults.
#pragma once

#include <shoal/workers/train/make_optimizer.h>
#include <torch/optim.h>

#include <stdexcept>

namespace shoal::test {

enum class Kind { sgd, adam, adamw, rmsprop, adagrad };

inline MakeOptimizer maker(Kind kind) {
  using namespace torch::optim;
  switch (kind) {
    case Kind::sgd:
      return optimizer_maker<SGD>(SGDOptions(0.1).momentum(0.9));
    case Kind::adam:
      return optimizer_maker<Adam>(AdamOptions(0.01).amsgrad(true));
    case Kind::adamw:
      return optimizer_maker<AdamW>(AdamWOptions(0.01).weight_decay(0.1));
    case Kind::rmsprop:
      return optimizer_maker<RMSprop>(RMSpropOptions(0.01).momentum(0.5));
    case Kind::adagrad:
      return optimizer_maker<Adagrad>(AdagradOptions(0.05));
  }
  throw std::invalid_argument("which?");
}

}  // namespace shoal::test
