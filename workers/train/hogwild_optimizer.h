// hogwild::SGD, Adam, AdamW, Adagrad, RMSprop: optimizers whose parameters and state all processes share.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/ipc/codec.h>
#include <shoal/tensors/optimizer.h>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}

namespace shoal::hogwild {

/// Whether processes that update one part of a parameter at the same time keep each other out.
enum class Locking {
  none,    ///< no: an update of an element may be lost, and the parts of an element's state may be of several steps
  striped  ///< one at a time in each stripe of a parameter: no update is lost
};

/// How the processes get along, and what is done with each process's gradients before they count.
struct SharingOptions {
  Locking locking = Locking::none;      ///< whether updates keep each other out
  std::size_t stripe_bytes = 64 << 10;  ///< of a parameter, under one lock; a row is never divided
  /// A process that is more than so many steps ahead of the slowest one waits for it at the end of step(); 0: all go in
  /// step. Nothing: nobody waits. Who has left, or is dead, is not waited for.
  std::optional<std::int64_t> staleness_bound = {};
  std::chrono::nanoseconds timeout = std::chrono::minutes(30);  ///< of that wait
  std::optional<double> clip_grad_value = {};  ///< elements of gradients are moved into [-value, value], first
  std::optional<double> clip_grad_norm = {};   ///< then all of the process's gradients are scaled down to this norm
  double clip_grad_norm_type = 2;              ///< which norm that is; infinity: the largest element
};

/// As torch.optim.SGD has them.
struct SGDOptions {
  double lr = 1e-3;         ///< learning rate
  double momentum = 0;      ///< of the gradients before
  double dampening = 0;     ///< of what a gradient adds to the momentum
  double weight_decay = 0;  ///< times the parameter is added to its gradient
  bool nesterov = false;    ///< Nesterov's momentum
  bool maximize = false;    ///< goes up the gradient
};

/// As torch.optim.Adam has them.
struct AdamOptions {
  double lr = 1e-3;                                 ///< learning rate
  std::tuple<double, double> betas = {0.9, 0.999};  ///< weights of the averages before: of gradients, of their squares
  double eps = 1e-8;                                ///< is added to the root
  double weight_decay = 0;                          ///< times the parameter is added to its gradient
  bool amsgrad = false;                             ///< divides by the largest average so far
  bool maximize = false;                            ///< goes up the gradient
};

/// As torch.optim.AdamW has them.
struct AdamWOptions {
  double lr = 1e-3;                                 ///< learning rate
  std::tuple<double, double> betas = {0.9, 0.999};  ///< weights of the averages before: of gradients, of their squares
  double eps = 1e-8;                                ///< is added to the root
  double weight_decay = 1e-2;                       ///< times the rate is taken off the parameter
  bool amsgrad = false;                             ///< divides by the largest average so far
  bool maximize = false;                            ///< goes up the gradient
};

/// As torch.optim.Adagrad has them.
struct AdagradOptions {
  double lr = 1e-2;                      ///< learning rate
  double lr_decay = 0;                   ///< the rate is divided by 1 + this times the steps before
  double weight_decay = 0;               ///< times the parameter is added to its gradient
  double initial_accumulator_value = 0;  ///< of the sum of squares
  double eps = 1e-10;                    ///< is added to the root
  bool maximize = false;                 ///< goes up the gradient
};

/// As torch.optim.RMSprop has them.
struct RMSpropOptions {
  double lr = 1e-2;         ///< learning rate
  double alpha = 0.99;      ///< weight of the average before
  double eps = 1e-8;        ///< is added to the root
  double weight_decay = 0;  ///< times the parameter is added to its gradient
  double momentum = 0;      ///< of the gradients before
  bool centered = false;    ///< divides by the estimated variance
  bool maximize = false;    ///< goes up the gradient
};

/// Parameters with options of their own.
template <class Options>
struct ParamGroup {
  std::vector<at::Tensor> params;  ///< of the group
  Options options = {};            ///< theirs
};

/// What the five optimizers have in common. A handle: copies are the same optimizer. One thread of a process at a time
/// uses it. Encodable: the parent makes it over a module in shared memory and gives it to the ranks, which then have the
/// same parameters, the same state and the same counts of steps:
///
///   void train(int rank, Net net, shoal::hogwild::Adam optimizer) {
///     optimizer.attach(*net);  // whose gradients it takes
///     for (auto& batch : loader) {
///       optimizer.zero_grad();
///       torch::mse_loss(net->forward(batch.data), batch.target).backward();
///       optimizer.step();
///     }
///   }
///   shoal::share_memory_(net);
///   shoal::spawn({.nprocs = 4}, train, net, shoal::hogwild::Adam(net->parameters(), {.lr = 1e-3}));
///
/// * Gradients are each process's own. Sparse ones (COO, of rows) change the rows that they have and nothing else, also
///   of the state: that is torch's SparseAdam, and Adagrad; momentum and decay of other rows rest, too.
/// * Numbers of one process alone are those of torch.optim, within 1e-6: dense gradients go through libtorch's fused
///   kernels, which torch.optim takes with fused=True; RMSprop, which has none, and rows go through shoal's loops.
/// * A process that is killed in a step costs its step: elements that it had not come to stay as they were. Its locks
///   go to the next process that wants them, and nobody waits for it.
class Optimizer {
 public:
  /// One step with the gradients that there are; parameters without one rest. Throws std::invalid_argument for a
  /// gradient that does not fit its parameter, and std::logic_error if the optimizer came from another process and no
  /// parameter has a gradient, because attach() was forgotten; then nothing has happened. Throws TimeoutError, after
  /// the step, if another process stayed behind for too long.
  void step();
  /// Calls the closure, which computes the gradients, does a step, and returns what the closure returned: the loss.
  at::Tensor step(const std::function<at::Tensor()>& closure);
  /// Drops the gradients of the parameters, or sets them to zero.
  void zero_grad(bool set_to_none = true);

  /// Takes the gradients of these tensors from now on: the parameters in this process, in the order in which the
  /// optimizer was made. Throws std::invalid_argument if one of them is not the same memory as the optimizer's.
  void attach(const std::vector<at::Tensor>& parameters);
  /// attach() with the module's parameters.
  void attach(const torch::nn::Module& module);
  /// The parameters whose gradients it takes.
  const std::vector<at::Tensor>& parameters() const;

  /// Steps that all processes together have begun: exact. Also those that a death has cut off.
  std::int64_t steps() const;
  /// Steps that all processes together have done to their end. The difference to steps() is under way or was cut off.
  std::int64_t finished_steps() const;
  /// Both numbers, in all processes, for a training that goes on from a checkpoint: load_state() has no part of them, nor of
  /// learning rates. Nobody may be in a step. Throws std::invalid_argument for a number below 0.
  void set_steps(std::int64_t steps);

  double lr(std::size_t group = 0) const;       ///< the learning rate, which is one for all processes
  void set_lr(double rate);                     ///< of all groups, in all processes, from their next steps on
  void set_lr(double rate, std::size_t group);  ///< of one group
  std::size_t groups() const;                   ///< of parameters

  /// Says that this process has no more steps to do, so that nobody waits for it; the next step() takes that back. The
  /// last handle's destructor does it, too. Matters only if there is a staleness bound.
  void leave() noexcept;

  /// The state as shoal::optimizer_state has it of libtorch's optimizer of this name: for checkpoints, and to go on with
  /// that one. Counts of steps are copies, all else is the shared memory.
  OptimizerState state() const;
  /// Copies such a state into this one, for all processes; nobody may be in a step. SGD's momentum goes on from what it
  /// is; where it is all zeros it begins with the next step. Throws std::invalid_argument if the state does not fit.
  void load_state(const OptimizerState& state);

  /// Shoal's own.
  struct State;

 protected:
  explicit Optimizer(std::shared_ptr<State> state) : state_(std::move(state)) {}
  static void encode(Encoder& encoder, const Optimizer& optimizer);
  static std::shared_ptr<State> decode(Decoder& decoder, std::uint32_t rule);

 private:
  std::shared_ptr<State> state_;
};

/// torch.optim.SGD. The momentum is one for all processes: take less of it than for one.
class SGD : public Optimizer {
 public:
  using Options = SGDOptions;  ///< what it is made with
  /// The parameters lie in shared memory (share_memory_), on the CPU. Throws std::invalid_argument for others, and for
  /// options that make no sense; OutOfSharedMemory.
  explicit SGD(const std::vector<at::Tensor>& parameters, const SGDOptions& options = {},
               const SharingOptions& sharing = {});
  /// With several groups.
  explicit SGD(const std::vector<ParamGroup<SGDOptions>>& groups, const SharingOptions& sharing = {});

 private:
  friend struct Codec<SGD>;
  explicit SGD(std::shared_ptr<State> state) : Optimizer(std::move(state)) {}
  static constexpr std::uint32_t kRule = 0;  // of Rule
};

/// torch.optim.Adam; with sparse gradients torch.optim.SparseAdam.
class Adam : public Optimizer {
 public:
  using Options = AdamOptions;  ///< what it is made with
  /// The parameters lie in shared memory (share_memory_), on the CPU. Throws std::invalid_argument for others, and for
  /// options that make no sense; OutOfSharedMemory.
  explicit Adam(const std::vector<at::Tensor>& parameters, const AdamOptions& options = {},
                const SharingOptions& sharing = {});
  /// With several groups.
  explicit Adam(const std::vector<ParamGroup<AdamOptions>>& groups, const SharingOptions& sharing = {});

 private:
  friend struct Codec<Adam>;
  explicit Adam(std::shared_ptr<State> state) : Optimizer(std::move(state)) {}
  static constexpr std::uint32_t kRule = 1;
};

/// torch.optim.AdamW.
class AdamW : public Optimizer {
 public:
  using Options = AdamWOptions;  ///< what it is made with
  /// The parameters lie in shared memory (share_memory_), on the CPU. Throws std::invalid_argument for others, and for
  /// options that make no sense; OutOfSharedMemory.
  explicit AdamW(const std::vector<at::Tensor>& parameters, const AdamWOptions& options = {},
                 const SharingOptions& sharing = {});
  /// With several groups.
  explicit AdamW(const std::vector<ParamGroup<AdamWOptions>>& groups, const SharingOptions& sharing = {});

 private:
  friend struct Codec<AdamW>;
  explicit AdamW(std::shared_ptr<State> state) : Optimizer(std::move(state)) {}
  static constexpr std::uint32_t kRule = 2;
};

/// torch.optim.Adagrad.
class Adagrad : public Optimizer {
 public:
  using Options = AdagradOptions;  ///< what it is made with
  /// The parameters lie in shared memory (share_memory_), on the CPU. Throws std::invalid_argument for others, and for
  /// options that make no sense; OutOfSharedMemory.
  explicit Adagrad(const std::vector<at::Tensor>& parameters, const AdagradOptions& options = {},
                   const SharingOptions& sharing = {});
  /// With several groups.
  explicit Adagrad(const std::vector<ParamGroup<AdagradOptions>>& groups, const SharingOptions& sharing = {});

 private:
  friend struct Codec<Adagrad>;
  explicit Adagrad(std::shared_ptr<State> state) : Optimizer(std::move(state)) {}
  static constexpr std::uint32_t kRule = 3;
};

/// torch.optim.RMSprop.
class RMSprop : public Optimizer {
 public:
  using Options = RMSpropOptions;  ///< what it is made with
  /// The parameters lie in shared memory (share_memory_), on the CPU. Throws std::invalid_argument for others, and for
  /// options that make no sense; OutOfSharedMemory.
  explicit RMSprop(const std::vector<at::Tensor>& parameters, const RMSpropOptions& options = {},
                   const SharingOptions& sharing = {});
  /// With several groups.
  explicit RMSprop(const std::vector<ParamGroup<RMSpropOptions>>& groups, const SharingOptions& sharing = {});

 private:
  friend struct Codec<RMSprop>;
  explicit RMSprop(std::shared_ptr<State> state) : Optimizer(std::move(state)) {}
  static constexpr std::uint32_t kRule = 4;
};

/// One of the five.
template <class T>
concept AnyOptimizer = std::derived_from<T, Optimizer> && !std::same_as<T, Optimizer>;

}  // namespace shoal::hogwild

namespace shoal {

template <hogwild::AnyOptimizer T>
struct Codec<T> {
  static constexpr std::uint64_t schema() { return schema_hash("shoal::hogwild", std::uint64_t(T::kRule)); }
  static void encode(Encoder& encoder, const T& optimizer) { T::encode(encoder, optimizer); }
  static T decode(Decoder& decoder) { return T(T::decode(decoder, T::kRule)); }
};

}  // namespace shoal
