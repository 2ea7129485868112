// Gradients that are made where they are reduced.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/internal/tensors/storage/tensor_placement.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

namespace shoal {

/// Leads libtorch to make gradients in their places in a bucket, so that nobody has to copy them there. Autograd takes
/// no wishes, but an operation that makes a gradient asks for memory of its size, and a graph that is like the last one
/// asks in the same order. So if the last pass made a parameter's gradient in the third memory of a size that it asked
/// for, the third one of that size that this pass asks for is the place.
///
/// That is a guess. If it is wrong, some other tensor lies in the place, and the gradient elsewhere. That costs time, and
/// does no harm, since
/// * a place is given before its gradient has come, and only if nobody has anything that lies in it: neither the tensor
///   that was given out as the last gradient, nor any other of the bucket's memory;
/// * a gradient counts as made in its place if it lies there and nobody else has it (came());
/// * to a place that is_taken() nobody writes: another tensor lies there, for as long as its owner likes, and the
///   bucket's gradients have to lie elsewhere. The memory lives as long as what lies there.
/// Such a tensor lies in the heap, though is_shared() says no: a forked child that writes to it writes to its parent's.
///
/// Only places of at least kLeastBytes, at addresses that are aligned as libtorch's allocator aligns, are given.
/// Owned by a DirectReduction. Threads: places are given to the one that has called begin_pass(), in its backward
/// passes; the other calls may come from any.
class GradientPlacement final : public TensorPlacement {
 public:
  static constexpr std::size_t kLeastBytes = std::size_t(16) << 10;

  explicit GradientPlacement(std::size_t parameters) : places_(parameters) {}

  /// New memory for a bucket with elements like those of `bucket`, in the heap, not initialized. Most bytes of gradients
  /// of at least kLeastBytes have aligned places there.
  static at::Tensor memory_like(const at::Tensor& bucket, const std::vector<at::Tensor>& parameters);

  /// Gradients of these parameters belong to these places in `memory`, of which there are no other tensors yet. Before
  /// the first pass; buckets have the numbers 0, 1 and so on.
  void add_bucket(const at::Tensor& memory, const std::vector<std::size_t>& parameters,
                  const std::vector<at::Tensor>& places);
  /// Whether the tensors that are given out as gradients lie in that memory now; at first they do not.
  void set_views_there(std::size_t bucket, bool are_there);

  /// A pass begins in which this thread makes gradients in their places. `views`: by parameter, the tensor that is given
  /// out as its gradient, and of which the caller has one handle; undefined where none is to be made in its place.
  void begin_pass(const std::shared_ptr<GradientPlacement>& self, const std::vector<at::Tensor>& views);
  /// No place is given until the next pass.
  void end_pass();

  c10::DataPtr allocate(std::size_t bytes) override;

  /// A gradient has come, undefined if it is none; `brought`: by this tensor of the engine's. Returns whether it was made
  /// in its place, and nobody has it but the caller and the engine, which lets go of it now.
  bool came(std::size_t parameter, const at::Tensor& gradient, const at::Tensor& brought);
  /// Whether some tensor lies in the parameter's place that was made there.
  bool is_taken(std::size_t parameter) const;

 private:
  /// What keeps the memory for a tensor that was made in a place.
  struct Occupancy {
    at::Tensor bucket;
    std::shared_ptr<Occupancy> self;  // while it is taken; of who has it, or whoever takes it next
    std::atomic<bool> taken{false};
  };
  static constexpr std::size_t kNever = std::size_t(-1);
  struct Bucket {
    at::Tensor memory;
    std::size_t tensors;  // of this memory, while the views are elsewhere
    std::size_t places;
    bool has_views = false;
  };
  struct Place {
    void* data = nullptr;
    std::size_t bytes = 0, bucket = 0;
    std::shared_ptr<Occupancy> occupancy = {};  // null where nothing is ever made
    at::Tensor view = {};                       // in a pass, until the place is given or the gradient has come
    std::size_t turn = kNever;  // among the memory of its size: which one the last pass made the gradient in
  };
  struct Size {
    std::size_t bytes;
    std::vector<std::size_t> places;
    std::vector<const void*> made;  // in this pass
  };
  bool may_give(const Place& place) const;
  static c10::DataPtr give(Place& place);

  mutable std::mutex mutex_;
  std::vector<Bucket> buckets_;
  std::vector<Place> places_;
  std::vector<Size> sizes_;
  bool in_pass_ = false;
};

}  // namespace shoal
