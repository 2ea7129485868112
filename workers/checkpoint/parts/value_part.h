// A value of any encodable type as a part of a checkpoint.
#pragma once

#include <shoal/internal/workers/checkpoint/parts/part.h>
#include <shoal/ipc/codec.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <typeinfo>
#include <utility>

namespace shoal::detail {

class CheckpointFile;
struct CheckpointEntry;

/// A value as the codec writes it. What a message refers to in the heap goes into the file beside it.
class ValuePart final : public CheckpointPart {
 public:
  struct Type {
    const std::type_info& info;
    std::uint64_t schema;
  };
  using Encode = std::function<void(Encoder&)>;
  /// What takes a value that was read.
  struct Decoded {
    std::function<void()> check;  // throws for one that set() would refuse
    std::function<void()> set;
  };
  using Decode = std::function<Decoded(Decoder&)>;

  ValuePart(const std::string& name, const Type& type, Encode encode, Decode decode);
  void write(ShardContents& to) const override;
  std::function<void()> prepare(const CheckpointStep& from) const override;
  /// The same of the value in the shard that rank `shard` wrote.
  std::function<void()> prepare_from_shard(const CheckpointStep& from, int shard) const;

 private:
  std::function<void()> prepared(const CheckpointFile& file, const CheckpointEntry& entry) const;

  std::string type_;
  std::uint64_t schema_;
  Encode encode_;
  Decode decode_;
};

template <class T, class Get, class Set, class Check>
std::shared_ptr<ValuePart> make_value_part(const std::string& name, Get get, Set set, Check check) {
  return std::make_shared<ValuePart>(
      name, ValuePart::Type{typeid(T), schema_of<T>()},
      [get = std::move(get)](Encoder& encoder) mutable { shoal::encode<T>(encoder, get()); },
      [set = std::move(set), check = std::move(check)](Decoder& decoder) {
        auto value = std::make_shared<T>(shoal::decode<T>(decoder));
        return ValuePart::Decoded{[value, check]() mutable { check(std::as_const(*value)); },
                                  [value, set]() mutable { set(std::move(*value)); }};
      });
}

}  // namespace shoal::detail
