#include <torch/csrc/api/include/torch/serialize/archive.h>

#include <cinttypes>
#include <cstdio>

#include "ahead/errors.h"
#include "ahead/exported.h"
#include "ahead/version.h"
#include "base/files.h"
#include "base/hash.h"
#include "ir/constants.h"

/// The two files of an exported module. The text begins with two lines that say what it is:
///
///     ahead exported module, format 1, by ahead 0.1.0
///     text 0123456789abcdef tensors 0123456789abcdef
///
/// The numbers are hashes of the lines below and of the file of tensors.
namespace ahead::aot {
namespace {

constexpr int format_version = 1;
constexpr const char* signature_end = "\n---\n";

struct Paths {
  explicit Paths(const std::string& folder)
      : text(folder + "/program.txt"), tensors(folder + "/tensors.pt") {}
  const std::string text, tensors;
};

[[noreturn]] void throw_damaged(const std::string& path, const std::string& what) {
  throw UserError("export", path + ": " + what + ". Export the module again.");
}

std::string head(uint64_t text_hash, uint64_t tensors_hash) {
  char lines[160];
  std::snprintf(lines, sizeof(lines),
                "ahead exported module, format %d, by ahead %s\n"
                "text %016" PRIx64 " tensors %016" PRIx64 "\n",
                format_version, version(), text_hash, tensors_hash);
  return lines;
}

void check_has_text(const Argument& argument, const Node& node) {
  if (argument.is_list()) {
    for (const Argument& element : argument.list()) check_has_text(element, node);
  } else if (argument.is_graph()) {
    for (const Node& inner : argument.graph()->nodes()) {
      for (const Argument& element : inner.args()) check_has_text(element, inner);
    }
  } else if (argument.is_constant()) {
    if (const OpaqueConstant* opaque = OpaqueConstant::in(argument.constant())) {
      throw UserError("export", node.op().name() + ": it takes " + opaque->text +
                                    ", which lives in this process only. Let the module do "
                                    "without it.");
    }
  }
}

/// A graph that reads back as itself and can run.
std::string text_of(const Graph& graph) {
  std::string text = graph.str();
  const Graph read = Graph::parse(text);
  for (const Node& node : read.nodes()) {
    for (const Argument& argument : node.args()) check_has_text(argument, node);
  }
  if (read.hash() != graph.hash())
    throw InternalError("export", "the graph does not read back as itself:\n" + text);
  return text;
}

/// As torch::save does it with a vector of tensors.
void save_tensors(const std::vector<at::Tensor>& tensors, const std::string& path) {
  const std::string unfinished = path + ".unfinished";
  try {
    torch::serialize::OutputArchive archive;
    for (size_t i = 0; i < tensors.size(); ++i)
      archive.write(std::to_string(i), tensors[i].detach());
    archive.save_to(unfinished);
  } catch (const c10::Error& error) {
    throw UserError("export", path + ": cannot be written: " + error.msg() + ". Check the folder.");
  }
  if (std::rename(unfinished.c_str(), path.c_str()) != 0)
    throw UserError("export", path + ": cannot be written. Check the folder.");
}

std::vector<at::Tensor> load_tensors(const std::string& path, size_t count) {
  std::vector<at::Tensor> tensors(count);
  try {
    torch::serialize::InputArchive archive;
    archive.load_from(path);
    for (size_t i = 0; i < count; ++i) archive.read(std::to_string(i), tensors[i]);
  } catch (const c10::Error& error) {
    throw_damaged(path, "LibTorch cannot read it: " + error.msg());
  }
  return tensors;
}

struct Hashes {
  uint64_t text = 0, tensors = 0;
};

/// Reads the first two lines, and takes them off the text.
Hashes take_head(std::string& text, const std::string& path) {
  int format = 0, length = 0;
  Hashes hashes;
  if (std::sscanf(text.c_str(), "ahead exported module, format %d%n", &format, &length) != 1)
    throw_damaged(path, "this is no exported module");
  if (format != format_version) {
    throw UserError("export", path + ": its format is " + std::to_string(format) +
                                  ", and this is ahead " + version() + ", which reads format " +
                                  std::to_string(format_version) +
                                  ". Use the version that wrote it, or export the module again.");
  }
  const size_t first = text.find('\n');
  const size_t second = first == std::string::npos ? first : text.find('\n', first + 1);
  if (second == std::string::npos ||
      std::sscanf(text.c_str() + first + 1, "text %16" SCNx64 " tensors %16" SCNx64, &hashes.text,
                  &hashes.tensors) != 2) {
    throw_damaged(path, "its second line is damaged");
  }
  text.erase(0, second + 1);
  return hashes;
}

void check_tensor(const at::Tensor& tensor, const TensorMeta& expected, const std::string& path) {
  const bool fits = tensor.defined() && tensor.scalar_type() == expected.dtype &&
                    tensor.sizes() == expected.sizes.fixed() && tensor.device() == expected.device;
  if (!fits) throw_damaged(path, "its tensors are not those of the program");
}

}  // namespace

void ExportedModule::save(const std::string& folder) const {
  const Paths paths(folder);
  const std::string text = signature.str() + signature_end + text_of(graph);
  make_folders(folder, "export", "Save to another folder.");
  save_tensors(tensors, paths.tensors);
  const std::string all = head(hash_bytes(text), hash_file(paths.tensors)) + text;
  if (!write_file(paths.text, all))
    throw UserError("export", paths.text + ": cannot be written. Check the folder.");
}

ExportedModule ExportedModule::load(const std::string& folder) {
  const Paths paths(folder);
  std::string text;
  if (!read_file(paths.text, text)) throw_damaged(paths.text, "it cannot be read");
  const Hashes hashes = take_head(text, paths.text);
  const size_t end = text.find(signature_end);
  if (hash_bytes(text) != hashes.text || end == std::string::npos)
    throw_damaged(paths.text, "it is damaged: its contents are not what was written");
  if (hash_file(paths.tensors) != hashes.tensors)
    throw_damaged(paths.tensors, "it is missing or damaged: it is not what was written");
  ExportedModule loaded;
  loaded.signature = GraphSignature::parse(std::string_view(text).substr(0, end + 1));
  loaded.graph = JointGraph(
      Graph::parse(std::string_view(text).substr(end + std::string_view(signature_end).size())));
  loaded.signature.check(loaded.graph);
  loaded.tensors = load_tensors(paths.tensors, loaded.signature.static_inputs().size());
  for (size_t i = 0; i < loaded.tensors.size(); ++i) {
    const TensorMeta& meta = loaded.graph.inputs()[i].value->meta;
    check_tensor(loaded.tensors[i], meta, paths.tensors);
    const bool is_parameter =
        loaded.signature.inputs[i].kind == GraphSignature::InputKind::Parameter;
    loaded.tensors[i].set_requires_grad(is_parameter && meta.requires_grad);
  }
  return loaded;
}

}  // namespace ahead::aot
