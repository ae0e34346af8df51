#include "compile/dump.h"

#include <atomic>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "ahead/errors.h"
#include "base/files.h"

namespace ahead::compiling {
namespace {

using runtime::CallPlan;
using runtime::Epilogue;
using runtime::Prologue;

std::string numbered(size_t number, const std::string& name) {
  char text[32];
  std::snprintf(text, sizeof(text), "%03zu", number);
  return text + ("_" + name);
}

void write(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  if (file.flush()) return;
  throw UserError("dump", path + ": cannot be written. Check Options::dump_folder.");
}

std::string make_folder(const std::string& parent, const std::string& name) {
  static std::atomic<size_t> next{0};
  std::string folder = parent + "/" + numbered(next.fetch_add(1), name);
  make_folders(folder, "dump", "Check Options::dump_folder.");
  return folder;
}

const char* name_of(BackwardAutocast kind) {
  constexpr const char* names[] = {"as called", "same as forward", "off or given"};
  return names[static_cast<size_t>(kind)];
}

const char* name_of(Confirm confirm) {
  switch (confirm.kind()) {
    case Confirm::EveryCall:
      return "every call";
    case Confirm::Never:
      return "never";
    case Confirm::Doubling:
      break;
  }
  return "doubling";
}

std::string describe(const Options& options) {
  std::ostringstream text;
  const PartitionChoice& partitioner = options.partitioner;
  text << std::boolalpha << "backend: " << options.backend << "\nstrict: " << options.strict
       << "\nfullgraph: " << options.fullgraph << "\npartitioner: "
       << (partitioner.function()                       ? "of the user's"
           : partitioner.kind() == Partitioner::Default ? "default"
                                                        : "min-cut")
       << "\nmemory_budget: " << options.memory_budget << "\nconfirm: " << name_of(options.confirm)
       << "\nskip_passes:";
  for (const std::string& pass : options.skip_passes) text << " " << pass;
  text << "\nrecompile_limit: " << options.recompile_limit
       << "\ndouble_backward: " << options.double_backward
       << "\nbackward_autocast: " << name_of(options.backward_autocast.kind())
       << "\ndebug_asserts: " << options.debug_asserts
       << "\nkeep_input_mutations: " << options.keep_input_mutations
       << "\nrecord_places: " << options.record_places
       << "\ndonated_buffers: " << options.donated_buffers
       << "\nlazy_backward: " << options.lazy_backward << "\n";
  return text.str();
}

std::string describe(const Prologue::Input& input) {
  switch (input.kind) {
    case Prologue::Input::Kind::Argument:
      return "argument " + std::to_string(input.index);
    case Prologue::Input::Kind::Captured:
      return "captured";
    case Prologue::Input::Kind::GradOfInput:
      return "grad of input " + std::to_string(input.index);
    case Prologue::Input::Kind::Base:
      return "base " + std::to_string(input.index);
  }
  return "";
}

std::string describe(const runtime::Source& source) {
  constexpr const char* kinds[] = {"input ", "output ", "view ", "argument "};
  return kinds[static_cast<size_t>(source.kind)] + std::to_string(source.index);
}

std::string describe(const Epilogue::Result& result) {
  switch (result.kind) {
    case Epilogue::Result::Kind::Undefined:
      return "undefined";
    case Epilogue::Result::Kind::Tensor:
      return describe(result.source);
    case Epilogue::Result::Kind::Repeated:
      return "result " + std::to_string(result.repeats);
  }
  return "";
}

std::string describe(const Epilogue::Write& write) {
  std::string text = "input " + std::to_string(write.input) + " is ";
  text += write.in_graph      ? "written to in the graph"
          : write.output >= 0 ? "output " + std::to_string(write.output)
                              : std::string("written to");
  return text + (write.geometry ? ", of another shape" : "");
}

std::string describe(const CallPlan& plan) {
  std::ostringstream text;
  for (size_t i = 0; i < plan.prologue->inputs.size(); ++i)
    text << "input " << i << ": " << describe(plan.prologue->inputs[i]) << "\n";
  for (const Epilogue::Write& write : plan.epilogue.writes)
    text << "write: " << describe(write) << "\n";
  for (const Epilogue::NewGrad& grad : plan.epilogue.new_grads)
    text << "new grad: of input " << grad.input << ", output " << grad.output << "\n";
  for (const runtime::ViewStep& view : plan.epilogue.views) {
    text << "view: " << c10::toString(view.op->operator_name()) << " of " << describe(view.source)
         << "\n";
  }
  for (size_t i = 0; i < plan.epilogue.results.size(); ++i)
    text << "result " << i << ": " << describe(plan.epilogue.results[i]) << "\n";
  for (int32_t output : plan.backward.differentiable)
    text << "differentiable: output " << output << "\n";
  for (int32_t input : plan.backward.grad_inputs) text << "gradient: of input " << input << "\n";
  text << "saved: " << plan.backward.saved.size() << "\n";
  return text.str();
}

}  // namespace

void dump(const Compilation& made, const Options& options) {
  if (options.dump_folder.empty()) return;
  const std::string folder = make_folder(options.dump_folder, made.plan->name);
  write(folder + "/options.txt", describe(options));
  write(folder + "/meta.txt", made.meta);
  write(folder + "/plan.txt", describe(*made.plan));
  const std::vector<Program> programs = made.programs();
  for (size_t i = 0; i < programs.size(); ++i)
    write(folder + "/" + numbered(i, programs[i].name) + ".graph", programs[i].str());
}

}  // namespace ahead::compiling
