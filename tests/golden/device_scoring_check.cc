// scoring-*.gguf on a device: what the device's kernels measure of the case's entries, beside the same on the processor
// and beside the file's numbers. Devices multiply queries, keys and values in f16 and project by weights in bf16, so
// the case's numbers are rounded to these first.
#include <ggml-cpp.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "device/host_device.h"
#include "engine/device/device_statistics.h"
#include "golden/checks.h"
#include "golden/scoring_case.h"
#include "golden/scoring_measures.h"
#include "kernels/entries/rows.h"

namespace winnow::golden {
namespace {

// The rounding of the case's numbers may cost this. Most is lost where logits are clamped: .7 % of one score.
constexpr Tolerance kRounded = {2e-2, 0, 2e-3};

// The layers of a case in a device's memory.
class DeviceCase {
 public:
  DeviceCase(const ScoringCase& prompt, device::Device& device) : prompt_(prompt), device_(device) {
    for (const CaseLayer& layer : prompt.layers) {
      std::vector<float> w_o(layer.w_o.size());  // [n_embd][n_head * head_dim], as model files have it
      const std::size_t n_in = w_o.size() / static_cast<std::size_t>(prompt.n_embd);
      for (std::size_t i = 0; i < w_o.size(); ++i) {
        w_o[i % prompt.n_embd * n_in + i / prompt.n_embd] = layer.w_o[i];
      }
      layers_.push_back({.keys = upload(EntryType::kF16, layer.k),
                         .values = upload(EntryType::kF16, layer.v),
                         .w_o = upload(EntryType::kBF16, w_o)});
    }
  }

  void with_view(int l, const EvidenceNeeds& needs, const std::function<void(const LayerView&)>& body) {
    prompt_.with_view(l, needs, [&](const LayerView& on_processor) { show(l, on_processor, body); });
  }

 private:
  struct Layer {
    device::Buffer keys, values, w_o;
  };

  // Calls `body` with a view of the same layer, whose entries lie on the device.
  void show(int l, const LayerView& on_processor, const std::function<void(const LayerView&)>& body) {
    const Layer& layer = layers_[l];
    const std::size_t page_bytes = row_bytes(EntryType::kF16, prompt_.head_dim) * kPageEntries;
    const std::size_t head_bytes = row_bytes(EntryType::kF16, prompt_.head_dim) * prompt_.n_tokens;
    std::vector<kernels::EntryRun> runs;
    LayerEntries entries = {.layer = l, .shape = nullptr, .pass = nullptr, .heads = {}, .rows = {}};
    for (const kernels::HeadEntries& head : on_processor.heads) {
      std::byte* const keys = layer.keys.data() + runs.size() * head_bytes;
      std::byte* const values = layer.values.data() + runs.size() * head_bytes;
      kernels::EntryRun run = head.runs.front();
      run.keys = keys;
      run.values = values;
      run.key_type = run.value_type = EntryType::kF16;
      runs.push_back(run);
      HeadRows rows = {.n_entries = prompt_.n_tokens};
      for (std::size_t at = 0; at < head_bytes; at += page_bytes) {
        rows.pages.push_back({.keys = keys + at, .values = values + at});
      }
      entries.rows.push_back(std::move(rows));
    }
    std::vector<kernels::HeadEntries> heads;
    for (const kernels::EntryRun& run : runs) heads.push_back({.runs = {&run, 1}, .n_entries = run.n_entries});
    entries.heads = heads;

    const ggml_context_ptr context(
        ggml_init({.mem_size = 2 * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
    ggml_tensor* const w_o = ggml_new_tensor_2d(context.get(), GGML_TYPE_BF16,
                                                std::int64_t{prompt_.n_head} * prompt_.head_dim, prompt_.n_embd);
    w_o->data = layer.w_o.data();
    DeviceStatistics statistics({.device = device_,
                                 .memory = memory_,
                                 .attention = {.n_head = prompt_.n_head,
                                               .n_kv_head = prompt_.n_kv_head,
                                               .key_dim = prompt_.head_dim,
                                               .value_dim = prompt_.head_dim,
                                               .key_type = EntryType::kF16,
                                               .value_type = EntryType::kF16,
                                               .scale = on_processor.shape.spec.scale,
                                               .soft_cap = 0,
                                               .sliding_window = 0,
                                               .sink_logits = nullptr},
                                 .w_o = [=] { return w_o; },
                                 .n_embd = prompt_.n_embd,
                                 .parallel_for = serial(),
                                 .output_projection = [&] { return prompt_.layers[l].w_o; }},
                                entries);
    LayerView view = on_processor;
    view.shape.key_type = view.shape.value_type = EntryType::kF16;
    view.heads = heads;
    view.statistics = &statistics;
    view.w_o = nullptr;
    body(view);
  }

  device::Buffer upload(EntryType type, const std::vector<float>& numbers) {
    const int n = static_cast<int>(numbers.size());
    std::vector<std::byte> stored(row_bytes(type, n));
    kernels::store_row(type, numbers.data(), stored.data(), n);
    device::Buffer buffer = device_.allocate(stored.size());
    device_.upload(buffer.data(), stored.data(), stored.size());
    return buffer;
  }

  const ScoringCase& prompt_;
  device::Device& device_;
  StatisticsMemory memory_;
  std::vector<Layer> layers_;
};

}  // namespace

void check_device_scoring(const std::string& path, Tally& tally) {
  const GoldenFile file(path);
  const ScoringCase prompt(file, CaseNumbers::kOfDevices);
  const std::shared_ptr<device::Device> device = device::open_host_device();
  DeviceCase on_device(prompt, *device);
  const ShowLayer show_processor = [&](int layer, const EvidenceNeeds& needs, const auto& body) {
    prompt.with_view(layer, needs, body);
  };
  const ShowLayer show_device = [&](int layer, const EvidenceNeeds& needs, const auto& body) {
    on_device.with_view(layer, needs, body);
  };
  const std::string what = path + " on a device: ";
  const auto expected = measure_statistics(prompt.n_layer, show_processor);
  for (const auto& [name, values] : measure_statistics(prompt.n_layer, show_device)) {
    tally.close(what + name, values, expected.at(name), kScores);
    if (file.has(name)) tally.close(what + "the file's " + name, values, file.doubles(name), kRounded);
  }
  for_each_scorer(file, tally, [&](const std::string& name, const EvictionOptions& options) {
    const std::vector<double> scores = measure_scores(prompt.n_layer, show_device, options);
    tally.close(what + "score/" + name, scores, measure_scores(prompt.n_layer, show_processor, options), kScores);
    compare_scores(file, name, options, scores, kRounded, tally);
  });
}

}  // namespace winnow::golden
