#include "tests/workers/beton/beton_vectors.h"

#include <zlib.h>

#include <fstream>
#include <iterator>
#include <stdexcept>

#include "tests/support/source_tree.h"

namespace shoal::test {

std::vector<std::uint8_t> gunzipped(const std::string& path) {
  gzFile file = ::gzopen(path.c_str(), "rb");
  if (file == nullptr) throw std::runtime_error(path + ": not there");
  std::vector<std::uint8_t> bytes, part(1U << 20U);
  for (int got; (got = ::gzread(file, part.data(), unsigned(part.size()))) > 0;)
    bytes.insert(bytes.end(), part.begin(), part.begin() + got);
  ::gzclose(file);
  return bytes;
}

std::vector<std::uint8_t> beton_vector(const std::string& name) {
  return gunzipped(in_sources("tests/workers/beton/vectors/" + name + ".beton.gz"));
}

std::string write_beton(const TemporaryFolder& folder, const std::string& name,
                        const std::vector<std::uint8_t>& bytes) {
  const std::string path = folder.file(name + ".beton");
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), std::streamsize(bytes.size()));
  return path;
}

std::vector<std::uint8_t> bytes_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace shoal::test
