#include <cstdlib>
#include <vector>

#include <tessera/neuzip.hpp>

int main() {
  std::vector<tessera::bfloat16> const weights(1000, tessera::store<tessera::bfloat16>(0.5f));
  std::vector<tessera::bfloat16> back(weights.size());
  tessera::cpu exec;
  tessera::neuzip::decode(exec, tessera::neuzip::encode(exec, weights), back);
  for (std::size_t i = 0; i < back.size(); ++i)
    if (tessera::load(back[i]) != 0.5f) return EXIT_FAILURE;
  return EXIT_SUCCESS;
}
