// winnow info: a model's dimensions, what a token costs in its KV cache, and what fits in this machine's memory, or in
// that of a device.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/process_memory.h"
#include "base/utf8.h"
#include "cli/cache_flags.h"
#include "cli/commands.h"
#include "cli/model_flags.h"
#include "cli/number_text.h"
#include "cli/output_file.h"
#include "cli/text_output.h"
#include "cli/text_table.h"
#include "device/devices.h"
#include "winnow/entries.h"
#include "winnow/eviction.h"

namespace winnow::cli {
namespace {

// Computes the bytes that a prompt needs with a model and entry types.
struct CostModel {
  ModelInfo model;
  std::size_t bytes_per_token = 0;   // in the cache, all layers
  std::size_t cut_token_bytes = 0;   // in the layers that methods cut
  std::size_t cut_f16_bytes = 0;     // of a token's keys and values there in f16
  std::size_t staged_bytes = 0;      // of a token in a prefill: the largest layer's, and shared layers'
  std::vector<std::size_t> entries;  // [n_layer] bytes of an entry, 0 in a layer without

  CostModel(const ModelInfo& info, EntryType key_type, EntryType value_type) : model(info) {
    std::size_t largest = 0;
    for (const LayerInfo& layer : model.layers) {
      entries.push_back(layer.n_kv_head == 0 ? 0 : kernels::entry_bytes(layer, key_type, value_type));
      const std::size_t token = entries.back() * static_cast<std::size_t>(layer.n_kv_head);
      bytes_per_token += token;
      cut_token_bytes += layer.is_evictable() ? token : 0;
      if (layer.is_evictable()) {
        cut_f16_bytes += static_cast<std::size_t>(layer.n_kv_head) *
                         (row_bytes(EntryType::kF16, layer.key_dim) + row_bytes(EntryType::kF16, layer.value_dim));
      }
      // Rows arrive in plain types, whatever type they are stored in.
      const std::size_t plain =
          layer.n_kv_head == 0
              ? 0
              : static_cast<std::size_t>(layer.n_kv_head) *
                    (row_bytes(kernels::plain_type(key_type), layer.key_dim) +
                     row_bytes(kernels::plain_type(value_type), layer.value_dim) + sizeof(std::int32_t));
      const auto l = static_cast<int>(entries.size()) - 1;
      const bool is_shared = std::any_of(model.layers.begin(), model.layers.end(), [&](const LayerInfo& other) {
        return other.kind == LayerKind::kSharedAttention && other.kv_layer == l;
      });
      if (is_shared) {
        staged_bytes += plain;
      } else {
        largest = std::max(largest, plain);
      }
    }
    staged_bytes += largest;
  }

  // Returns the bytes of an entry in the layers that methods cut, the mean if layers differ; of the first layer if no
  // method cuts any.
  double bytes_per_entry() const {
    if (n_heads() > 0) return static_cast<double>(cut_token_bytes) / static_cast<double>(n_heads());
    return static_cast<double>(entries.front());
  }
  std::int64_t n_heads() const { return model.n_cut_heads(); }

  // Returns the bytes kept of n_tokens tokens; without a budget, of all. A layer with a sliding window keeps its
  // window.
  std::size_t kept_bytes(std::int64_t n_tokens, const std::optional<Budget>& budget) const {
    const EntryBytes entry{
        .stored = bytes_per_entry(),
        .f16_rows = static_cast<double>(cut_f16_bytes) / std::max(1.0, static_cast<double>(n_heads()))};
    const std::int64_t n = budget ? budget->total_entries(n_tokens, n_heads(), entry) : n_tokens * n_heads();
    auto bytes = static_cast<std::size_t>(static_cast<double>(n) * bytes_per_entry());
    for (std::size_t l = 0; l < model.layers.size(); ++l) {
      const LayerInfo& layer = model.layers[l];
      if (layer.sliding_window == 0) continue;
      bytes += entries[l] *
               static_cast<std::size_t>(layer.n_kv_head * std::min<std::int64_t>(n_tokens, layer.sliding_window));
    }
    return bytes;
  }

  // Returns the bytes while a prompt is prefilled: one layer in full and the hidden states, in f32.
  std::size_t prefill_bytes_per_token() const { return staged_bytes + model.hidden_bytes_per_token(); }

  std::size_t peak_bytes(std::int64_t n_tokens, const std::optional<Budget>& budget) const {
    // Recurrent layers have the present state and the next.
    return kept_bytes(n_tokens, budget) + 2 * model.state_bytes() +
           static_cast<std::size_t>(n_tokens) * prefill_bytes_per_token();
  }

  // Returns the longest prompt whose peak is at most `bytes`.
  std::int64_t longest_prompt(std::size_t bytes, const std::optional<Budget>& budget) const {
    std::int64_t fits = 0, too_long = std::int64_t{1} << 31;
    while (too_long - fits > 1) {
      const std::int64_t middle = fits + (too_long - fits) / 2;
      (peak_bytes(middle, budget) <= bytes ? fits : too_long) = middle;
    }
    return fits;
  }
};

std::vector<std::int64_t> context_lengths(std::int64_t n_ctx_train) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t length = 1024; length < n_ctx_train; length *= 2) lengths.push_back(length);
  lengths.push_back(n_ctx_train);
  return lengths;
}

// The memory in which a model computes.
struct Machine {
  std::string device;  // "cpu": this machine's processor
  std::size_t total;
  std::size_t available;   // a device has the model's weights already
  std::size_t for_prompt;  // available without the weights

  bool is_device() const { return device != "cpu"; }
};

// Returns this machine, or the device that is named. That gets the weights, so what is left is known and not computed.
Machine machine_of(const std::shared_ptr<const Model>& model, const ModelFlags& flags, EntryType key, EntryType value) {
  const EngineOptions options = engine_options(flags);
  if (flags.device != "cpu") {
    // "auto" may be this machine, on which an engine would rearrange the weights.
    if (device::open_device(options.device) != nullptr) {
      const std::shared_ptr<Engine> engine = create_engine(model, options);
      engine->open({.key_type = key, .value_type = value});  // throws for types that the device does not store
      const auto [total, free] = engine->free_memory();
      return {engine->device(), total, free, free};
    }
  }
  const std::size_t available = memory_available();
  return {"cpu", memory_total(), available, available - std::min<std::size_t>(available, model->info().bytes)};
}

// Returns one number, or the smallest and the largest if layers differ.
std::string range_text(const ModelInfo& model, int LayerInfo::*dimension) {
  std::vector<int> values = model.dimension(dimension);
  std::erase(values, 0);  // of layers without this dimension
  if (values.empty()) values.push_back(0);
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return count_text(*low) + (*low == *high ? "" : " to " + count_text(*high));
}

int largest(const ModelInfo& model, int LayerInfo::*dimension) {
  const std::vector<int> values = model.dimension(dimension);
  return *std::max_element(values.begin(), values.end());
}

std::string layers_text(const ModelInfo& model) {
  const auto n_sliding = std::count_if(model.layers.begin(), model.layers.end(),
                                       [](const LayerInfo& layer) { return layer.kind == LayerKind::kSlidingWindow; });
  std::string text = count_text(model.n_layer());
  if (n_sliding > 0 && n_sliding < model.n_layer()) text += ", " + count_text(n_sliding) + " with a sliding window";
  const auto n_recurrent = std::count_if(model.layers.begin(), model.layers.end(),
                                         [](const LayerInfo& layer) { return layer.kind == LayerKind::kRecurrent; });
  if (n_recurrent > 0) text += ", " + count_text(n_recurrent) + " recurrent";
  const auto n_shared = std::count_if(model.layers.begin(), model.layers.end(),
                                      [](const LayerInfo& layer) { return layer.kind == LayerKind::kSharedAttention; });
  if (n_shared > 0) text += ", " + count_text(n_shared) + " that share the entries of others";
  return text;
}

// Returns "" if there are no experts.
std::string experts_text(const ModelInfo& model) {
  if (largest(model, &LayerInfo::n_expert) == 0) return "";
  const int shared = largest(model, &LayerInfo::shared_n_ff);
  return range_text(model, &LayerInfo::n_expert) + ", " + range_text(model, &LayerInfo::n_expert_used) +
         " of them for a token" + (shared > 0 ? ", and one of width " + count_text(shared) + " for every token" : "");
}

// Returns a dimension of the layers: a number, or a list if they differ.
nlohmann::ordered_json one_or_all(const std::vector<int>& values) {
  return values.size() == 1 ? nlohmann::ordered_json(values.front()) : nlohmann::ordered_json(values);
}

// Returns text of a model file for a terminal: control characters, which could steer it (escape sequences), become '?'.
std::string shown_text(const std::string& text) {
  std::string shown;
  for (std::string_view rest = text; !rest.empty();) {
    const Utf8Step step = first_character(rest);
    const bool is_control = step.character < 0x20 || (step.character >= 0x7F && step.character < 0xA0);
    shown += is_control ? "?" : valid_utf8(rest.substr(0, step.n_bytes));
    rest.remove_prefix(step.n_bytes);
  }
  return shown;
}

std::string describe(const CostModel& cost, const Machine& machine, const std::string& types,
                     const std::vector<Budget>& budgets) {
  const ModelInfo& model = cost.model;
  const auto number = [](auto value) { return count_text(static_cast<std::int64_t>(value)); };
  TextTable facts({{"model"}, {model.name.empty() ? "(no name)" : shown_text(model.name)}});
  facts.row({"architecture", model.architecture + ", " + short_count_text(static_cast<double>(model.n_parameters)) +
                                 " parameters, " + model.file_type + ", " + bytes_text(model.bytes)});
  facts.row({"layers", layers_text(model)});
  const std::string sizes = range_text(model, &LayerInfo::key_dim);
  const std::string value_sizes = range_text(model, &LayerInfo::value_dim);
  facts.row({"heads", range_text(model, &LayerInfo::n_head) + " for queries, " +
                          range_text(model, &LayerInfo::n_kv_head) + " for keys and values, of " + sizes +
                          (value_sizes == sizes ? "" : " and " + value_sizes)});
  facts.row({"width", number(model.n_embd) + ", feed-forward " + range_text(model, &LayerInfo::n_ff)});
  if (const std::string experts = experts_text(model); !experts.empty()) facts.row({"experts", experts});
  facts.row({"vocabulary", number(model.n_vocab)});
  const int window = largest(model, &LayerInfo::sliding_window);
  facts.row({"context", number(model.n_ctx_train) + (window > 0 ? ", sliding window " + number(window) : "")});
  if (model.state_bytes() > 0) facts.row({"state", bytes_text(model.state_bytes()) + " a sequence, of any length"});
  facts.row({"KV cache", bytes_text(cost.bytes_per_token) + " a token (" + types + ")"});
  facts.row({"memory", bytes_text(machine.available) + " available of " + bytes_text(machine.total) +
                           (machine.is_device() ? " on " + machine.device + ", which has the weights"
                                                : ", " + bytes_text(machine.for_prompt) + " without the weights")});

  std::vector<TextTable::Column> columns{{"prompt tokens", Align::kRight}, {"full cache", Align::kRight}};
  for (const Budget& budget : budgets) columns.push_back({"keep " + budget.text(), Align::kRight});
  TextTable table(columns);
  for (const std::int64_t length : context_lengths(model.n_ctx_train)) {
    std::vector<std::string> cells{count_text(length), bytes_text(cost.kept_bytes(length, std::nullopt))};
    for (const Budget& budget : budgets) cells.push_back(bytes_text(cost.kept_bytes(length, budget)));
    table.row(std::move(cells));
  }
  std::vector<std::string> fits{"most that fits", count_text(cost.longest_prompt(machine.for_prompt, std::nullopt))};
  for (const Budget& budget : budgets) fits.push_back(count_text(cost.longest_prompt(machine.for_prompt, budget)));
  table.row(std::move(fits));
  return facts.plain() + "\n" + table.plain() + "\n" +
         wrap_text("The last line is in tokens, for " +
                       (machine.is_device() ? "the memory of " + machine.device : "this machine's memory") +
                       ". It counts what a prefill needs on top: " + bytes_text(cost.prefill_bytes_per_token()) +
                       " a token for one layer's keys and values and the hidden states.",
                   80, 0) +
         "\n";
}

std::string to_json(const CostModel& cost, const Machine& machine, const std::string& key_type,
                    const std::string& value_type, const std::vector<Budget>& budgets) {
  const ModelInfo& model = cost.model;
  nlohmann::ordered_json json;
  json["model"] = {{"name", model.name},
                   {"architecture", model.architecture},
                   {"file_type", model.file_type},
                   {"n_parameters", model.n_parameters},
                   {"bytes", model.bytes},
                   {"n_layer", model.n_layer()},
                   {"n_head", one_or_all(model.dimension(&LayerInfo::n_head))},
                   {"n_kv_head", one_or_all(model.dimension(&LayerInfo::n_kv_head))},
                   {"head_dim", one_or_all(model.dimension(&LayerInfo::key_dim))},
                   {"n_embd", model.n_embd},
                   {"n_ff", one_or_all(model.dimension(&LayerInfo::n_ff))},
                   {"n_expert", one_or_all(model.dimension(&LayerInfo::n_expert))},
                   {"n_expert_used", one_or_all(model.dimension(&LayerInfo::n_expert_used))},
                   {"state_bytes", model.state_bytes()},
                   {"n_vocab", model.n_vocab},
                   {"n_ctx_train", model.n_ctx_train},
                   {"sliding_window", one_or_all(model.dimension(&LayerInfo::sliding_window))}};
  json["kv"] = {{"type_k", key_type},
                {"type_v", value_type},
                {"bytes_per_entry", std::llround(cost.bytes_per_entry())},
                {"bytes_per_token", cost.bytes_per_token}};
  json["memory"] = {{"device", machine.device},
                    {"total_bytes", machine.total},
                    {"available_bytes", machine.available},
                    {"prefill_bytes_per_token", cost.prefill_bytes_per_token()}};
  std::vector<std::pair<std::string, std::optional<Budget>>> columns{{"full", std::nullopt}};
  for (const Budget& budget : budgets) columns.emplace_back(budget.text(), budget);
  json["contexts"] = nlohmann::ordered_json::array();
  for (const std::int64_t length : context_lengths(model.n_ctx_train)) {
    nlohmann::ordered_json kept, peak;
    for (const auto& [name, budget] : columns) {
      kept[name] = cost.kept_bytes(length, budget);
      peak[name] = cost.peak_bytes(length, budget);
    }
    json["contexts"].push_back({{"n_tokens", length}, {"kv_bytes", kept}, {"prefill_peak_bytes", peak}});
  }
  for (const auto& [name, budget] : columns) json["fits"][name] = cost.longest_prompt(machine.for_prompt, budget);
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

// Prints the devices for `winnow info --devices`.
void show_devices(const std::optional<std::string>& json_path) {
  std::string missing;
  const std::vector<device::DeviceInfo> devices = device::list_devices(&missing);
  if (json_path) {
    nlohmann::ordered_json json{{"devices", nlohmann::ordered_json::array()}, {"missing", missing}};
    for (const device::DeviceInfo& device : devices) {
      json["devices"].push_back({{"id", device.id},
                                 {"name", device.name},
                                 {"description", device.description},
                                 {"total_bytes", device.bytes_total}});
    }
    OutputFile(*json_path).write(json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    return;
  }
  TextTable table({{"device"}, {"memory", Align::kRight}, {"what it is"}});
  for (const device::DeviceInfo& device : devices) {
    table.row({device.id, bytes_text(device.bytes_total),
               device.name + (device.description.empty() ? "" : "; " + device.description)});
  }
  std::string text = table.plain();
  if (!missing.empty()) text += "\nNo GPU: " + wrap_text(missing + ".", 80, 8) + "\n";
  write_output(text);
}

constexpr const char* kInfoExamples =
    "  winnow info\n"
    "  winnow info --devices\n"
    "  winnow info -m model.gguf -ctk q8_0 -ctv q8_0 --kv-budget 4096,10%\n";

}  // namespace

int info_command(const Arguments& arguments) {
  ModelFlags model_flags;
  const std::string plain_type = "f16";
  std::string key_type = plain_type, value_type = plain_type;
  const std::vector<std::string> shown_budgets{"20%", "10%", "5%"};
  std::vector<std::string> budget_texts = shown_budgets;
  std::optional<std::string> json_path;
  bool devices = false;
  CommandLine line("winnow info", "[flags]",
                   "Shows a model's dimensions, the KV cache memory that a token takes, and the longest prompts that "
                   "fit in this machine's memory or a device's, with the full cache and at given budgets.",
                   kInfoExamples);
  line.group("Model");
  add_model_flag(line, model_flags);
  line.group("KV cache");
  add_type_flags(line, key_type, value_type);
  line.texts("--kv-budget", "AMOUNT,..", ',', budget_texts, "budgets to show (default: 20%,10%,5%)");
  line.group("Devices");
  add_device_flags(line, model_flags);
  line.flag("--devices", devices,
            "list the devices that --device can name, and what a GPU would need, instead of a model");
  line.group("Output");
  line.text("--json", "FILE", json_path, "write the output as JSON; - for standard output");
  if (!line.parse(arguments)) return 0;

  if (devices) {
    for (const auto& [name, is_given] :
         {std::pair{"-m", model_flags.path.has_value()}, std::pair{"--device", model_flags.device != "cpu"},
          std::pair{"-ngl", model_flags.device_layers != -1}, std::pair{"-ctk", key_type != plain_type},
          std::pair{"-ctv", value_type != plain_type}, std::pair{"--kv-budget", budget_texts != shown_budgets}}) {
      if (is_given) throw UsageError(std::string(name) + " has no effect with --devices: leave one of them out");
    }
    show_devices(json_path);
    return 0;
  }
  const std::vector<Budget> budgets = parse_budgets("--kv-budget", budget_texts);
  for (const Budget& budget : budgets) {
    if (budget.unit != Budget::Unit::kLoss) continue;
    throw UsageError("--kv-budget " + budget.text() +
                     " has no fixed size without a prompt: give tokens, a share or bytes here; it takes at most " +
                     budget.most().text());
  }
  const EntryType key = parse_key_type(key_type);
  const EntryType value = parse_value_type(value_type);
  std::optional<OutputFile> file;
  if (json_path) file.emplace(*json_path);

  const std::shared_ptr<const Model> model = Model::load(model_path(model_flags));
  const CostModel cost(model->info(), key, value);
  const Machine machine = machine_of(model, model_flags, key, value);
  if (file) {
    file->write(to_json(cost, machine, key_type, value_type, budgets));
  } else {
    const std::string types = "keys " + key_type + ", values " + value_type;
    write_output(describe(cost, machine, types, budgets));
  }
  return 0;
}

}  // namespace winnow::cli
