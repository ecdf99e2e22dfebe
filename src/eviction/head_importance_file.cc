// Files of head importances: HeadKV's JSON and DuoAttention's matrix.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <string>

#include "eviction/json_file.h"
#include "eviction/numbers.h"
#include "winnow/eviction.h"

namespace winnow {
namespace {

constexpr int kMaxHeads = 1 << 16;  // per model: a damaged file must not ask for absurd memory

// {"layer-head": [scores], ...}
HeadImportance from_json(const std::string& path, const std::string& text) {
  const nlohmann::json json = parse_json(path, text);
  if (!json.is_object() || json.empty()) refuse_file(path, "is not of the form {\"layer-head\": [scores], ...}");
  struct Item {
    int layer, head;
    double weight;
  };
  std::vector<Item> items;
  HeadImportance result;
  for (const auto& [key, value] : json.items()) {
    const std::size_t dash = key.find('-');
    const auto layer = parse_integer<int>(std::string_view(key).substr(0, dash));
    const auto head =
        dash == std::string::npos ? std::nullopt : parse_integer<int>(std::string_view(key).substr(dash + 1));
    if (!layer || !head || *layer < 0 || *head < 0 || *layer >= kMaxHeads || *head >= kMaxHeads) {
      refuse_file(path, "has the key '" + key.substr(0, 64) + "', which is not \"layer-head\"");
    }
    double sum = 0;
    std::size_t n = 1;
    if (value.is_array()) {
      if (value.empty()) refuse_file(path, "has no scores for head '" + key + "'");
      for (const nlohmann::json& score : value) sum += number_of(path, score);
      n = value.size();
    } else {
      sum = number_of(path, value);
    }
    if (sum < 0) refuse_file(path, "has a negative importance for head '" + key + "'");
    items.push_back({*layer, *head, sum / static_cast<double>(n)});
    result.n_layer = std::max(result.n_layer, *layer + 1);
    result.n_head = std::max(result.n_head, *head + 1);
  }
  if (items.size() != static_cast<std::size_t>(result.n_layer) * static_cast<std::size_t>(result.n_head)) {
    refuse_file(path, "does not name every head of " + std::to_string(result.n_layer) + " layers x " +
                          std::to_string(result.n_head) + " heads");
  }
  result.weight.resize(items.size());
  for (const Item& item : items) {
    result.weight[static_cast<std::size_t>(item.layer) * result.n_head + item.head] = item.weight;
  }
  return result;
}

// A line for each layer, a number for each head.
HeadImportance from_matrix(const std::string& path, const std::string& text) {
  HeadImportance result;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream numbers(line);
    int n_head = 0;
    for (double weight = 0; numbers >> weight; ++n_head) {
      if (weight < 0) refuse_file(path, "has a negative importance in line " + std::to_string(result.n_layer + 1));
      result.weight.push_back(weight);
    }
    if (!numbers.eof()) {
      refuse_file(path, "is neither JSON nor a line of numbers for each layer (line " +
                            std::to_string(result.n_layer + 1) + ")");
    }
    if (n_head == 0) continue;
    if (result.n_layer > 0 && n_head != result.n_head) refuse_file(path, "has lines with different numbers of heads");
    result.n_head = n_head;
    ++result.n_layer;
  }
  if (result.n_layer == 0) refuse_file(path, "holds no head importances");
  return result;
}

}  // namespace

HeadImportance HeadImportance::load(const std::string& path) {
  const std::string text = read_input(path, input::kHeadFile);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool is_json = first != std::string::npos && (text[first] == '{' || text[first] == '[' || text[first] == '"');
  HeadImportance result = is_json ? from_json(path, text) : from_matrix(path, text);
  const double total = std::accumulate(result.weight.begin(), result.weight.end(), 0.0);
  if (!(total > 0) || !std::isfinite(total)) refuse_file(path, "has no importance above 0");
  return result;
}

}  // namespace winnow
