// What lies between a module's results and the loss.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/intrusive_ptr.h>

#include <functional>
#include <vector>

namespace shoal {

/// The word of a backward pass that it begins, for whoever made the results.
struct BackwardBegins : torch::CustomClassHolder {
  std::function<void()> call;  // null once nobody wants to know
};

/// Puts copies in the place of the results, whose backward pass runs when any of them got a gradient, and gives the
/// others an undefined one, which goes on to the parameters behind them: so the Reducer hears of every parameter. Results
/// that no gradient goes through stay as they are: a parameter that was returned, an index.
void pass_on(const c10::intrusive_ptr<BackwardBegins>& begins, const std::vector<at::Tensor*>& results);

}  // namespace shoal
