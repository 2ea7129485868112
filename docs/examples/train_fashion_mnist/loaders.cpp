#include "train_fashion_mnist/loaders.h"

#include "train_fashion_mnist/shards.h"

std::unique_ptr<Loader> training_loader(const Data& data, const Settings& settings, Mode mode, int rank) {
  return std::make_unique<Loader>(
      shoal::DataLoaderOptions{.batch_size = batch_of(settings, mode), .num_workers = settings.workers}, *data.train,
      sampler_of(settings, mode, rank, data.train_size));
}

std::unique_ptr<shoal::BetonLoader<>> beton_loader(const Data& data, const Settings& settings, Mode mode) {
  const shoal::BetonLoaderOptions options{
      .batch_size = batch_of(settings, mode),
      .num_workers = settings.workers,
      .order = shoal::BetonOrder::quasi_random,
      .distributed = true,
      .seed = settings.seed,
      .pipelines = {{"data", {shoal::NDArrayDecoder{}, shoal::ToTensor{}}},
                    {"target", {shoal::IntDecoder{}, shoal::ToTensor{}, shoal::Squeeze{}}}},
      .drop_last = false};
  return std::make_unique<shoal::BetonLoader<>>(data.beton, options);
}

shoal::Example example_of(const shoal::BetonSample& batch) { return {batch.at("data"), batch.at("target")}; }

std::unique_ptr<Loader> test_loader(const Data& data, int ranks, int rank) {
  return std::make_unique<Loader>(shoal::DataLoaderOptions{.batch_size = 500}, data.test,
                                  shoal::EvaluationSampler({.num_replicas = ranks, .rank = rank}, data.test.size()));
}
