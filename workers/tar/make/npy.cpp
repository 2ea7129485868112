#include <shoal/internal/workers/tar/make/npy.h>

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <shoal/workers/datasets/dataset_error.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string_view>

namespace shoal::detail {
namespace {

constexpr std::string_view kNpyMagic = "\x93NUMPY";
constexpr std::array kTypes = {at::kByte,  at::kChar,   at::kBool,         at::kShort,        at::kInt,
                               at::kLong,  at::kUInt16, at::kUInt32,       at::kUInt64,       at::kHalf,
                               at::kFloat, at::kDouble, at::kComplexFloat, at::kComplexDouble};

/// NumPy's code without its byte order: "f4".
std::string code_of(at::ScalarType type) {
  char kind = 'u';
  if (type == at::kBool) kind = 'b';
  if (c10::isFloatingType(type)) kind = 'f';
  if (c10::isComplexType(type)) kind = 'c';
  if (type == at::kChar || type == at::kShort || type == at::kInt || type == at::kLong) kind = 'i';
  return fmt::format("{}{}", kind, c10::elementSize(type));
}

/// What follows 'KEY': in the header, a Python dict of three, without blanks in front.
std::optional<std::string_view> value_of(std::string_view header, std::string_view key) {
  const std::size_t at = header.find(fmt::format("'{}':", key));
  if (at == std::string_view::npos) return std::nullopt;
  header.remove_prefix(at + key.size() + 3);
  header.remove_prefix(std::min(header.find_first_not_of(' '), header.size()));
  return header;
}

/// "(3, 4), ..." Nothing for what is no shape.
std::optional<std::vector<std::int64_t>> shape_of(std::string_view text) {
  if (!text.starts_with('(')) return std::nullopt;
  std::vector<std::int64_t> shape;
  const char* at = text.data() + 1;
  const char* end = text.data() + text.size();
  while (true) {
    while (at != end && (*at == ' ' || *at == ',')) ++at;
    if (at == end) return std::nullopt;
    if (*at == ')') return shape;
    std::int64_t size = 0;
    const auto [behind, error] = std::from_chars(at, end, size);
    if (error != std::errc() || size < 0 || shape.size() == 64) return std::nullopt;
    shape.push_back(size);
    at = behind;
  }
}

}  // namespace

at::Tensor parse_npy(std::span<const std::uint8_t> bytes, const std::string& where) {
  const auto fail = [&](const std::string& what) { throw DatasetError(fmt::format("{}: {}", where, what)); };
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!text.starts_with(kNpyMagic) || text.size() < 12 || bytes[6] < 1 || bytes[6] > 3)
    fail("no .npy file of version 1 to 3");
  const std::size_t before = bytes[6] == 1 ? 10 : 12;
  std::uint32_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data() + 8, before - 8);
  if (header_bytes > text.size() - before) fail("the .npy file ends within its header");
  const std::string_view header = text.substr(before, header_bytes);
  const auto data = bytes.subspan(before + header_bytes);
  const auto descr = value_of(header, "descr"), order = value_of(header, "fortran_order"),
             sizes = value_of(header, "shape");
  const auto shape = sizes ? shape_of(*sizes) : std::nullopt;
  const std::size_t quote = descr && descr->starts_with('\'') ? descr->find('\'', 1) : std::string_view::npos;
  if (!order || !shape || quote == std::string_view::npos || quote < 3)
    fail(fmt::format("the .npy file's header is {:?}; an array of numbers has descr, fortran_order and shape", header));
  const std::string_view code = descr->substr(1, quote - 1);
  const auto type = std::ranges::find(kTypes, code.substr(1), code_of);
  if (type == kTypes.end() || std::string_view("<>|=").find(code[0]) == std::string_view::npos)
    fail(fmt::format("no tensor has elements of the type {:?}", code));
  unsigned __int128 needed = c10::elementSize(*type);
  for (const std::int64_t size : *shape)
    needed = std::min<unsigned __int128>(needed * static_cast<std::uint64_t>(size), ~std::uint64_t{0});
  if (needed != data.size())
    fail(fmt::format("{} bytes of elements, which is not what {} has", data.size(),
                     sizes->substr(0, sizes->find(')') + 1)));
  const bool is_fortran = order->starts_with("True");
  std::vector<std::int64_t> stored = *shape;
  if (is_fortran) std::ranges::reverse(stored);
  at::Tensor tensor = at::empty(stored, at::TensorOptions(*type));
  auto* target = static_cast<std::uint8_t*>(tensor.mutable_data_ptr());
  if (!data.empty()) std::memcpy(target, data.data(), data.size());
  if (code[0] == '>') {
    const std::size_t number = c10::elementSize(*type) / (c10::isComplexType(*type) ? 2 : 1);
    for (std::size_t at = 0; at + number <= data.size(); at += number) std::reverse(target + at, target + at + number);
  }
  if (!is_fortran) return tensor;
  std::vector<std::int64_t> reversed(stored.size());
  for (std::size_t i = 0; i < reversed.size(); ++i) reversed[i] = std::int64_t(reversed.size() - 1 - i);
  return tensor.permute(reversed).contiguous();
}

std::vector<std::uint8_t> store_npy(const at::Tensor& tensor) {
  if (std::ranges::find(kTypes, tensor.scalar_type()) == kTypes.end())
    throw std::invalid_argument(fmt::format("NumPy has no type for {}", c10::toString(tensor.scalar_type())));
  if (!tensor.is_cpu())
    throw std::invalid_argument(fmt::format("a tensor on {} cannot be stored as .npy; give tensors on the CPU (.cpu())",
                                            tensor.device().str()));
  const at::Tensor rows = tensor.resolve_conj().resolve_neg().contiguous();  // what it reads as, not what lies there
  std::string shape;
  for (const std::int64_t size : rows.sizes()) shape += fmt::format("{}, ", size);
  if (rows.dim() > 1) shape.resize(shape.size() - 2);
  if (rows.dim() == 1) shape.pop_back();
  const char order = rows.element_size() == 1 ? '|' : '<';
  std::string header = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}), }}", order,
                                   code_of(rows.scalar_type()), shape);
  header.append(63 - (kNpyMagic.size() + 4 + header.size()) % 64, ' ');  // so that elements begin at a multiple of 64
  header += '\n';
  std::string file(kNpyMagic);
  file += {'\1', '\0', char(header.size() & 0xFFU), char(header.size() >> 8U)};
  file += header;
  std::vector<std::uint8_t> bytes(file.begin(), file.end());
  const auto* elements = static_cast<const std::uint8_t*>(rows.const_data_ptr());
  bytes.insert(bytes.end(), elements, elements + rows.nbytes());
  return bytes;
}

}  // namespace shoal::detail
