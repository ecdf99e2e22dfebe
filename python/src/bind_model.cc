#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <utility>

#include "bindings.h"
#include "winnow/model.h"

namespace winnow::python {
namespace {

namespace nb = nanobind;
using namespace nb::literals;

const char* kind_name(LayerKind kind) {
  switch (kind) {
    case LayerKind::kFullAttention:
      return "full-attention";
    case LayerKind::kSlidingWindow:
      return "sliding-window";
    case LayerKind::kSharedAttention:
      return "shared-attention";
    case LayerKind::kRecurrent:
      break;
  }
  return "recurrent";
}

nb::dict layer_dict(const LayerInfo& layer) {
  nb::dict dict;
  dict["kind"] = kind_name(layer.kind);
  dict["n_head"] = layer.n_head;
  dict["n_kv_head"] = layer.n_kv_head;
  dict["key_dim"] = layer.key_dim;
  dict["value_dim"] = layer.value_dim;
  dict["n_ff"] = layer.n_ff;
  dict["window"] = layer.sliding_window;
  dict["is_cut"] = layer.is_evictable();
  return dict;
}

nb::dict info_dict(const Model& model) {
  const ModelInfo& info = model.info();
  nb::dict dict;
  dict["architecture"] = info.architecture;
  dict["name"] = info.name;
  dict["file_type"] = info.file_type;
  dict["n_parameters"] = info.n_parameters;
  dict["bytes"] = info.bytes;
  dict["n_embd"] = info.n_embd;
  dict["n_vocab"] = info.n_vocab;
  dict["n_ctx_train"] = info.n_ctx_train;
  nb::list layers;
  for (const LayerInfo& layer : info.layers) layers.append(layer_dict(layer));
  dict["layers"] = layers;
  return dict;
}

// Texts of a file need not be UTF-8, so invalid bytes are replaced.
nb::dict metadata_dict(const Model& model) {
  const auto text = [](const std::string& given) {
    return nb::steal<nb::str>(PyUnicode_DecodeUTF8(given.data(), static_cast<Py_ssize_t>(given.size()), "replace"));
  };
  nb::dict dict;
  for (const auto& [key, value] : model.metadata()) dict[text(key)] = text(value);
  return dict;
}

nb::bytes bytes_of(const std::string& text) { return nb::bytes(text.data(), text.size()); }

}  // namespace

void bind_model(nb::module_& module) {
  nb::enum_<SpecialToken>(module, "SpecialToken")
      .value("begin", SpecialToken::kBegin)
      .value("end", SpecialToken::kEnd)
      .value("newline", SpecialToken::kNewline)
      .value("infill_prefix", SpecialToken::kInfillPrefix)
      .value("infill_suffix", SpecialToken::kInfillSuffix)
      .value("infill_middle", SpecialToken::kInfillMiddle);
  nb::class_<Model>(module, "Model")
      .def_static(
          "load",
          [](const std::string& path, bool use_mmap, const std::string& chat_template,
             std::vector<std::pair<std::string, MetadataValue>> metadata) {
            const nb::gil_scoped_release release;
            // The model is immutable, which nanobind cannot express.
            return std::const_pointer_cast<Model>(Model::load(
                path, {.use_mmap = use_mmap, .chat_template = chat_template, .metadata = std::move(metadata)}));
          },
          "path"_a, "use_mmap"_a = true, "chat_template"_a = "",
          "metadata"_a = std::vector<std::pair<std::string, MetadataValue>>{})
      .def_prop_ro("info", &info_dict)
      .def_prop_ro("metadata", &metadata_dict)
      .def("special_token", &Model::special_token, "which"_a)
      .def(
          "tokenize",
          [](const Model& model, const nb::bytes& text, bool add_special, bool parse_special) {
            const std::string_view bytes(text.c_str(), text.size());
            const nb::gil_scoped_release release;
            return model.tokenize(bytes, add_special, parse_special);
          },
          "text"_a, "add_special"_a, "parse_special"_a)
      .def(
          "token_text",
          [](const Model& model, Token token, bool special) { return bytes_of(model.token_text(token, special)); },
          "token"_a, "special"_a = false)
      .def("is_end_of_generation", &Model::is_end_of_generation, "token"_a)
      .def("has_chat_template", &Model::has_chat_template);
}

}  // namespace winnow::python
