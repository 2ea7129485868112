// Collectives of values of any type.
#pragma once

#include <c10/util/Type.h>
#include <shoal/internal/workers/train/group/group_layout.h>
#include <shoal/tensors/codec.h>
#include <shoal/workers/train/communicator.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

namespace shoal {

/// Collectives with the names of torch's, for whatever has a Codec: results of an evaluation, names, dictionaries,
/// tensors in structs. Values may differ in size from rank to rank, but not in type. Each receiver gets its own value,
/// as out of a Queue: shared tensors are the same memory, private ones are copied for each receiver, so share large
/// ones first.
///
/// All ranks call them at once, like Communicator's collectives.
///
/// - If a rank's value cannot be encoded, that rank gets what its codec threw, and all others get Error, which says so.
/// - If types differ, all get CollectiveMismatch.
/// - If a value cannot be decoded, its receiver alone gets DecodeError.
///
/// The group can be used on after any of these.
///
///   for (const Scores& scores : shoal::all_gather_object(ranks, own_scores)) total += scores;

namespace object_collectives {

/// value_for(rank) is the value for that rank; take(value, rank) gets the value from that rank.
template <class T, class ValueFor, class Take>
void exchange(Communicator& ranks, Collective what, int root, ValueFor value_for, Take take) {
  ranks.exchange({what, root, schema_of<T>(), c10::demangle(typeid(T).name()),
                  [&](Encoder& encoder, int to) { encode<T>(encoder, value_for(to)); },
                  [&](Decoder& decoder, int from) {
                    T value = decode<T>(decoder);
                    decoder.finish();
                    take(std::move(value), from);
                  }});
}

}  // namespace object_collectives

/// Returns every rank's value, in the order of ranks.
template <class T>
std::vector<T> all_gather_object(Communicator& ranks, const T& value) {
  std::vector<T> values;
  object_collectives::exchange<T>(
      ranks, Collective::all_gather_object, -1, [&](int) -> const T& { return value; },
      [&](T&& got, int) { values.push_back(std::move(got)); });
  return values;
}

/// Like all_gather_object() on root; returns nothing on the others.
template <class T>
std::vector<T> gather_object(Communicator& ranks, const T& value, int root = 0) {
  std::vector<T> values;
  object_collectives::exchange<T>(
      ranks, Collective::gather_object, root, [&](int) -> const T& { return value; },
      [&](T&& got, int) { values.push_back(std::move(got)); });
  return values;
}

/// value = root's value. If that fails, the others' values stay as they are.
template <class T>
void broadcast_object(Communicator& ranks, T& value, int root = 0) {
  object_collectives::exchange<T>(
      ranks, Collective::broadcast_object, root, [&](int) -> const T& { return value; },
      [&](T&& got, int) { value = std::move(got); });
}

/// Returns root's values[r] on rank r; the others' values are ignored. If root has not as many values as there are
/// ranks, it gets std::invalid_argument, and the others get Error.
template <class T>
T scatter_object(Communicator& ranks, const std::vector<T>& values, int root = 0) {
  std::optional<T> own;
  object_collectives::exchange<T>(
      ranks, Collective::scatter_object, root,
      [&](int to) -> decltype(auto) {
        if (values.size() != std::size_t(ranks.world_size()))
          throw std::invalid_argument("scatter_object: " + std::to_string(values.size()) + " values for " +
                                      std::to_string(ranks.world_size()) + " ranks");
        return values[std::size_t(to)];
      },
      [&](T&& got, int) { own.emplace(std::move(got)); });
  return std::move(*own);
}

}  // namespace shoal
