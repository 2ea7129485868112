#include <shoal/ipc/descriptor.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <shoal/internal/ipc/descriptor/offers.h>
#include <shoal/ipc/error.h>

#include <cerrno>
#include <stdexcept>

namespace shoal {

Descriptor Descriptor::duplicate_of(int descriptor) {
  Fd copy(::fcntl(descriptor, F_DUPFD_CLOEXEC, 3));
  if (!copy)
    throw SystemError(fmt::format("duplicating descriptor {}", descriptor), errno,
                      errno == EBADF ? "it is not open" : "raise the limit of descriptors (ulimit -n)");
  return Descriptor(std::move(copy));
}

void Codec<Descriptor>::encode(Encoder& encoder, const Descriptor& descriptor) {
  if (!descriptor) throw std::invalid_argument("a Descriptor without a descriptor cannot be sent");
  encoder.write(DescriptorOffers::current().offer(descriptor.get(), encoder));
}

Descriptor Codec<Descriptor>::decode(Decoder& decoder) {
  return Descriptor(DescriptorOffers::fetch(decoder.handle(decoder.read<std::uint32_t>())));
}

}  // namespace shoal
