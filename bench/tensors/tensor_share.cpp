// What does it cost to share a tensor, to encode and decode a shared one, and to free it? For each layout, in one
// process, so that no cache line moves and no one waits. Beside torch.multiprocessing's pickling of the same tensors;
// the floors are at::from_blob and its end, and memcpy.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <shoal/ipc/queue.h>
#include <shoal/runtime/init.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/share.h>

#include <CLI/CLI.hpp>
#include <cstring>
#include <functional>
#include <optional>
#include <vector>

#include "bench/report/report.h"

namespace {

using namespace shoal::bench;
using shoal::Decoder;
using shoal::Encoder;

/// Calls are too short to be timed one by one: a sample is the mean of this many, each on a tensor of its own.
constexpr int kBatch = 64;

struct Layout {
  const char* name;
  std::function<at::Tensor()> make;
};

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all{
      {"64 B", [] { return at::ones({16}); }},
      {"transposed view", [] { return at::ones({4, 4}).t(); }},
      {"leaf that requires grad", [] { return at::ones({16}).requires_grad_(); }},
      {"quantized per tensor", [] { return at::quantize_per_tensor(at::ones({8, 8}), 0.1, 3, at::kQUInt8); }},
      {"sparse COO", [] { return at::eye(8).to_sparse(); }},
      {"sparse CSR", [] { return at::eye(8).to_sparse_csr(); }},
  };
  return all;
}

struct Samples {
  std::vector<double> share, encode, decode, free;
};

Decoder decoder_of(Encoder& message) {
  Decoder::Handles handles;
  for (const shoal::HoldRef& handle : message.handles()) handles.push_back(shoal::Hold::from_transit(handle));
  message.sent();
  return Decoder(message.bytes(), std::move(handles));
}

double nanos_each(double seconds) { return seconds * 1e9 / kBatch; }

/// What a sender and a receiver do with a tensor that is shared, apart from the queue between them.
Samples measure(const Layout& layout, int rounds) {
  Samples samples;
  for (int round = -rounds / 10 - 1; round < rounds; ++round) {
    std::vector<at::Tensor> tensors;
    for (int i = 0; i < kBatch; ++i) tensors.push_back(layout.make());
    const double share = seconds([&] {
      for (at::Tensor& tensor : tensors) shoal::share_memory_(tensor);
    });
    std::vector<std::optional<Encoder>> messages(kBatch);
    for (auto& message : messages) message.emplace();
    const double encode = seconds([&] {
      for (int i = 0; i < kBatch; ++i) shoal::encode(*messages[std::size_t(i)], tensors[std::size_t(i)]);
    });
    const double decode = seconds([&] {
      for (auto& message : messages) {
        Decoder decoder = decoder_of(*message);
        (void)shoal::decode<at::Tensor>(decoder);  // and its release
      }
    });
    const double free = seconds([&] { tensors.clear(); });
    if (round < 0) continue;
    samples.share.push_back(nanos_each(share));
    samples.encode.push_back(nanos_each(encode));
    samples.decode.push_back(nanos_each(decode));
    samples.free.push_back(nanos_each(free));
  }
  return samples;
}

std::vector<double> from_blob(int rounds) {
  alignas(64) static float memory[16];
  std::vector<double> samples;
  for (int round = 0; round < rounds; ++round)
    samples.push_back(nanos_each(seconds([&] {
      for (int i = 0; i < kBatch; ++i) at::from_blob(memory, {16}, [](void*) {}, at::kFloat);
    })));
  return samples;
}

/// A private tensor made, put, got and freed, as a producer and a consumer do it together.
std::vector<double> fresh_through_queue(int rounds) {
  shoal::Queue<at::Tensor> queue(kBatch);
  std::vector<double> samples;
  for (int round = 0; round < rounds; ++round)
    samples.push_back(nanos_each(seconds([&] {
      for (int i = 0; i < kBatch; ++i) queue.put(at::empty({64}, at::kByte));
      for (int i = 0; i < kBatch; ++i) queue.get();
    })));
  return samples;
}

/// In place, once each, of a size at which the copy is what counts.
void share_large(Report& report, std::int64_t bytes, const std::string& name, int count) {
  const std::string case_name = "share " + name;
  std::vector<double> share, copy;
  at::Tensor target = shoal::empty_shared({bytes}, at::kByte);
  for (int i = -1; i < count; ++i) {
    at::Tensor source = at::ones({bytes}, at::kByte);
    const double copied =
        seconds([&] { std::memcpy(target.mutable_data_ptr(), source.const_data_ptr(), std::size_t(bytes)); });
    const double shared = seconds([&] { shoal::share_memory_(source); });
    if (i < 0) continue;
    copy.push_back(copied * 1e6);
    share.push_back(shared * 1e6);
  }
  report.add("memcpy", case_name, "us", copy);
  report.add("shoal", case_name, "us", share);
  report.ask(case_name, "median", "torch", 1);
}

}  // namespace

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  CLI::App app("sharing, encoding, decoding and freeing tensors, beside torch's pickling");
  bool peers = true;
  int rounds = 2000;
  app.add_flag("--peers,!--no-peers", peers, "run the peers too");
  app.add_option("--rounds", rounds, "batches of each case");
  CLI11_PARSE(app, argc, argv);
  at::set_num_threads(1);
  Report report("tensor_share");
  report.add("at::from_blob", "decode and release 64 B", "ns", from_blob(rounds));
  for (const Layout& layout : layouts()) {
    const Samples samples = measure(layout, rounds);
    const std::string name = layout.name;
    report.add("shoal", "share " + name, "ns", samples.share);
    report.add("shoal", "encode " + name, "ns", samples.encode);
    report.add("shoal", "decode and release " + name, "ns", samples.decode);
    report.add("shoal", "free " + name, "ns", samples.free);
    for (const char* what : {"share ", "encode ", "decode and release "}) report.ask(what + name, "median", "torch", 1);
  }
  report.add("shoal", "fresh 64 B, made, put, got and freed", "ns", fresh_through_queue(rounds));
  share_large(report, 1 << 20, "1 MiB", 200);
  share_large(report, 64 << 20, "64 MiB", 10);
  report.ask_value("encode 64 B", "median", 100);
  report.ask_value("decode and release 64 B", "median", 300);
  if (peers) report.run_peer("tensors/tensor_share");
}
