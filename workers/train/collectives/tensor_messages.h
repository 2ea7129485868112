// Tensors from rank to rank, over a mailbox.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/internal/workers/train/group/mailbox.h>
#include <shoal/workers/train/point_to_point.h>

#include <memory>

/// The isend() and irecv() of the ranks that a mailbox knows; Mailbox::kAnySource: from any.
namespace shoal::tensor_messages {

Transfer isend(std::shared_ptr<Mailbox> mailbox, const at::Tensor& tensor, int to, int tag);
Transfer irecv(std::shared_ptr<Mailbox> mailbox, const at::Tensor& tensor, int from, int tag);

}  // namespace shoal::tensor_messages
