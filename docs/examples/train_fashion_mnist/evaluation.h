// How good the network is on the test set, exactly.
#pragma once

#include "train_fashion_mnist/agreement.h"
#include "train_fashion_mnist/data.h"

class Learner;

/// Of the whole test set: every sample counts once, whatever the number of ranks.
struct Evaluation {
  double loss;           // mean over the samples
  double accuracy;       // share of right answers
  at::Tensor confusion;  // int64 [10, 10]: rows are classes, columns answers
};

/// Each rank answers its share, and all get all ranks' answers, in the order of the test set. Collective; nobody may train
/// meanwhile.
Evaluation evaluate(Learner& learner, const Data& data, const Group& group);
