#include "train_fashion_mnist/data.h"

#include <shoal/tensors/share.h>
#include <shoal/workers/beton/beton_file.h>

#include "train_fashion_mnist/beton.h"

namespace {

shoal::MnistDataset shared_split(const Settings& settings, shoal::MnistSplit split) {
  shoal::MnistDataset data = shoal::load_mnist(settings.data, split);
  for (at::Tensor* tensor : {&data.images, &data.labels}) shoal::share_memory_(*tensor);
  return data;
}

}  // namespace

Data load_data(const Settings& settings) {
  Data data{.test = shared_split(settings, shoal::MnistSplit::test)};
  if (settings.data_format == DataFormat::beton) {
    data.beton = beton_of(settings);
    data.train_size = shoal::BetonFile(data.beton).size();
  } else {
    data.train = shared_split(settings, shoal::MnistSplit::train);
    data.train_size = data.train->size();
  }
  return data;
}
