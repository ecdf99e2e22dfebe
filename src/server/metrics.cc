#include "server/metrics.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <vector>

#include "base/numbers.h"

namespace winnow::server {
namespace {

struct Sample {
  std::string labels;  // name="value", or empty
  double value;
};

std::string metric(const std::string& name, const char* type, const char* help, const std::vector<Sample>& samples) {
  std::string text = "# HELP winnow_" + name + " " + help + "\n# TYPE winnow_" + name + " " + type + "\n";
  for (const Sample& sample : samples) {
    text += "winnow_" + name + (sample.labels.empty() ? "" : "{" + sample.labels + "}") + " " +
            format_number(sample.value) + "\n";
  }
  return text;
}

double number(std::int64_t value) { return static_cast<double>(value); }
double number(std::size_t value) { return static_cast<double>(value); }

std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t n_all = 0, n_resident = 0;
  file >> n_all >> n_resident;
  return n_resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

// Returns the bytes that the allocator gave out and those it holds back: a leak shows in the first, fragmentation in
// the second.
std::string heap_text() {
  const struct mallinfo2 heap = mallinfo2();
  return metric("heap_bytes", "gauge", "The allocator's memory: given out, and held back for later.",
                {{"kind=\"used\"", number(heap.uordblks + heap.hblkhd)}, {"kind=\"free\"", number(heap.fordblks)}});
}

std::string batch_text(const Batch& batch) {
  const BatchStatistics now = batch.statistics();
  const MemoryStatistics memory = batch.engine()->memory();
  return metric("requests_total", "counter", "Generation requests by outcome.",
                {{"outcome=\"finished\"", number(now.finished)},
                 {"outcome=\"cancelled\"", number(now.cancelled)},
                 {"outcome=\"failed\"", number(now.failed)},
                 {"outcome=\"refused\"", number(now.refused)}}) +
         metric("active_requests", "gauge", "Requests that wait, requests being read, and answers under way.",
                {{"state=\"queued\"", double(now.n_queued)},
                 {"state=\"reading\"", double(now.n_reading)},
                 {"state=\"answering\"", double(now.n_answering)}}) +
         metric("tokens_total", "counter", "Tokens read, reused because they were kept, and answered.",
                {{"kind=\"prompt\"", number(now.prompt_tokens)},
                 {"kind=\"cached\"", number(now.cached_tokens)},
                 {"kind=\"answer\"", number(now.answer_tokens)}}) +
         metric("engine_seconds_total", "counter", "Seconds of the engine's work.",
                {{"work=\"prefill\"", now.prefill_s}, {"work=\"decode\"", now.decode_s}}) +
         metric("engine_runs_total", "counter", "Slices of prefill and steps of decoding.",
                {{"work=\"prefill\"", number(now.slices)}, {"work=\"decode\"", number(now.steps)}}) +
         metric("context_lookups_total", "counter", "Requests whose beginning was already kept, or was not.",
                {{"result=\"hit\"", number(now.context_hits)}, {"result=\"miss\"", number(now.context_misses)}}) +
         metric("contexts_removed_total", "counter", "Kept contexts and conversations that were removed to make room.",
                {{"", number(now.contexts_removed)}}) +
         metric("kv_bytes", "gauge", "KV memory in use, resident, promised, in kept contexts, and its limit.",
                {{"kind=\"in_use\"", number(memory.kv_bytes_in_use)},
                 {"kind=\"resident\"", number(memory.kv_bytes_resident)},
                 {"kind=\"promised\"", number(now.bytes_reserved)},
                 {"kind=\"contexts\"", number(now.context_bytes)},
                 {"kind=\"limit\"", number(memory.kv_bytes_limit)}}) +
         metric("graph_bytes", "gauge", "Activations and logits of steps and slices, besides the KV memory.",
                {{"", number(memory.graph_bytes)}});
}

}  // namespace

std::string StatusCounts::text() const {
  std::vector<Sample> samples;
  for (std::size_t status = 0; status < counts_.size(); ++status) {
    if (counts_[status] > 0) samples.push_back({"status=\"" + std::to_string(status) + "\"", number(counts_[status])});
  }
  return metric("http_responses_total", "counter", "HTTP answers by status.", samples);
}

void Histogram::add(double seconds) {
  const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), seconds) - bounds_.begin();
  const std::lock_guard lock(mutex_);
  ++counts_[static_cast<std::size_t>(bucket)];
  sum_ += seconds;
}

std::string Histogram::text(const std::string& name, const char* help) const {
  const std::string full = "winnow_" + name;
  std::string text = "# HELP " + full + " " + help + "\n# TYPE " + full + " histogram\n";
  const std::lock_guard lock(mutex_);
  std::int64_t n = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    n += counts_[i];
    char bound[40] = "+Inf";
    if (i < bounds_.size()) std::snprintf(bound, sizeof(bound), "%g", bounds_[i]);
    text += full + "_bucket{le=\"" + bound + "\"} " + std::to_string(n) + "\n";
  }
  return text + full + "_sum " + format_number(sum_) + "\n" + full + "_count " + std::to_string(n) + "\n";
}

void Latencies::add(const BatchResult& result, double seconds) {
  request_.add(seconds);
  if (result.answer_tokens > 0) first_token_.add(result.queue_s + result.prefill_s);
  if (result.answer_tokens > 1) token_.add(result.decode_s / (result.answer_tokens - 1));
}

std::string Latencies::text() const {
  return request_.text("request_duration_seconds", "From the arrival of a request to the end of its answer.") +
         first_token_.text("time_to_first_token_seconds", "From the arrival of a request to its first token.") +
         token_.text("time_per_token_seconds", "Between two tokens, the mean of each request.");
}

std::string metrics_text(const StatusCounts& counts, const Latencies& latencies, const Batch* batch) {
  return metric("ready", "gauge", "Whether the model is loaded.", {{"", batch != nullptr ? 1.0 : 0.0}}) +
         metric("resident_bytes", "gauge", "Resident memory of the process.", {{"", number(resident_bytes())}}) +
         heap_text() + counts.text() + latencies.text() + (batch != nullptr ? batch_text(*batch) : "");
}

}  // namespace winnow::server
