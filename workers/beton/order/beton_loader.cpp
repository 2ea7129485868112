#include <shoal/workers/beton/beton_loader.h>

#include <fmt/format.h>
#include <shoal/runtime/current_process.h>
#include <shoal/runtime/environment.h>

#include <algorithm>
#include <stdexcept>

namespace shoal::detail {

BetonSamplerOptions sampler_options(const BetonLoaderOptions& options) {
  BetonSamplerOptions sampler{.order = options.order, .seed = options.seed, .window_pages = options.window_pages};
  if (!options.distributed) return sampler;
  const CurrentProcess& self = current_process();
  if (self.rank >= 0) {  // of spawn
    sampler.num_replicas = self.nprocs;
    sampler.rank = self.rank;
  } else {
    const Environment launched = environment();
    sampler.num_replicas = launched.world_size;
    sampler.rank = launched.rank;
  }
  return sampler;
}

DataLoaderOptions loader_options(const BetonLoaderOptions& options) {
  if (options.batches_ahead < 1)
    throw std::invalid_argument(
        fmt::format("BetonLoader: batches_ahead is {}; give at least 1", options.batches_ahead));
  DataLoaderOptions loader = options.loader;
  loader.batch_size = options.batch_size;
  loader.num_workers = options.num_workers;
  loader.seed = options.seed;
  loader.drop_last = options.drop_last;
  const int workers = std::max(1, options.num_workers);
  loader.prefetch_factor = (options.batches_ahead + workers - 1) / workers;  // of each worker
  return loader;
}

BetonDatasetOptions dataset_options(const BetonLoaderOptions& options) {
  return {options.indices, options.filter, options.custom_fields};
}

}  // namespace shoal::detail
