#include "ahead/aot.h"

#include "runtime/backends.h"

namespace ahead::aot {
namespace detail {

ahead::detail::Compilers compilers_of(const Config& config) {
  const GraphCompiler interpreter = runtime::find_backend("interpreter");
  const auto chosen = [&](const GraphCompiler& compiler, const GraphCompiler& otherwise) {
    return compiler ? runtime::below_autograd(compiler) : otherwise;
  };
  const GraphCompiler forward = chosen(config.forward, interpreter);
  std::shared_ptr<const DecompositionTable> decompositions;
  if (!config.decompositions.empty()) {
    decompositions = std::make_shared<const DecompositionTable>(config.decompositions);
  }
  return {forward, chosen(config.backward, forward), chosen(config.inference, forward),
          std::move(decompositions), config.num_params_buffers};
}

Options options_of(const Config& config) {
  Options options = config.options;
  if (config.partition) options.partitioner = PartitionChoice(config.partition);
  options.keep_input_mutations = config.keep_inference_input_mutations;
  return options;
}

}  // namespace detail

CompiledFunction function(FlatFunction function, Config config) {
  return CompiledFunction(std::move(function), detail::options_of(config),
                          detail::compilers_of(config));
}

}  // namespace ahead::aot
