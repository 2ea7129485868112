#include <shoal/internal/workers/pool/function_name.h>

#include <sys/auxv.h>

namespace shoal::detail {
namespace {

enum class NameKind : std::uint8_t { kNone = 0, kOfProgram = 1, kWhole = 2 };

/// The program's build id. Every program has an entry point.
const std::string& program_build_id() {
  static const std::string id = name_function(reinterpret_cast<AnyFunction>(::getauxval(AT_ENTRY))).build_id;
  return id;
}

}  // namespace

void FunctionNames::write(Encoder& encoder, AnyFunction function) {
  if (!function) return encoder.write(NameKind::kNone);
  auto found = names_.find(function);
  if (found == names_.end()) found = names_.emplace(function, name_function(function)).first;
  const ImageFunction& name = found->second;
  if (name.build_id == program_build_id()) {
    encoder.write(NameKind::kOfProgram);
    encoder.write(name.offset);
  } else {
    encoder.write(NameKind::kWhole);
    encode(encoder, name);
  }
}

AnyFunction FunctionFinder::read(Decoder& decoder) {
  const auto kind = decoder.read<NameKind>();
  if (kind == NameKind::kNone) return nullptr;
  if (kind == NameKind::kWhole) return find_function(decode<ImageFunction>(decoder));
  if (kind != NameKind::kOfProgram) throw DecodeError("a pool's task names its function in an unknown way");
  const auto offset = decoder.read<std::uint64_t>();
  AnyFunction& function = own_[offset];
  if (!function) function = find_function({program_build_id(), offset, {}});
  return function;
}

}  // namespace shoal::detail
