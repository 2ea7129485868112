// DataParallel of modules whose graphs have saved a buffer: several passes may be under way.
#include <shoal/workers/train/data_parallel.h>
#include <torch/torch.h>

#include <limits>

#include "tests/support/catch.h"

using namespace shoal;

namespace data_parallel_buffers_test {

namespace {

struct MaskedImpl : torch::nn::Module {
  at::Tensor weight{register_parameter("weight", torch::ones({6}, at::kDouble))};
  at::Tensor mask{register_buffer("mask", torch::linspace(1, 2, 6, at::kDouble))};
  // The product's backward pass needs the buffer as it was.
  at::Tensor forward(const at::Tensor& input) { return input * (weight * mask).nan_to_num(); }
};
TORCH_MODULE(Masked);

}  // namespace

TEST_CASE("data parallel: a buffer that no pass has changed ends no graph of an earlier one") {
  for (const bool trains : {true, false})
    for (const bool has_nan : {false, true}) {
      INFO((trains ? "training" : "evaluation") << (has_nan ? ", with what is no number" : ""));
      Masked net, alone;
      for (Masked* one : {&net, &alone}) {
        (*one)->train(trains);
        if (has_nan) (*one)->mask[2] = std::numeric_limits<double>::quiet_NaN();
      }
      DataParallel<Masked> parallel(net, {.processes = 2});
      const at::Tensor first = torch::arange(30, at::kDouble).view({5, 6}), second = first + 1;
      const at::Tensor one = parallel(first), two = parallel(second);
      for (const at::Tensor& output : {one, two}) output.sum().backward();
      for (const at::Tensor& input : {first, second}) alone->forward(input).sum().backward();
      CHECK(torch::allclose(net->weight.grad(), alone->weight.grad(), 1e-12, 1e-12, /*equal_nan=*/true));
    }
}

}  // namespace data_parallel_buffers_test
