// The measures of a scoring case, wherever its entries lie: scores, and the statistics of layers.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "golden/golden_file.h"
#include "golden/tally.h"
#include "winnow/eviction.h"
#include "winnow/layer_view.h"

namespace winnow::golden {

// Calls `body` with the view of one layer, which has everything that `needs` asks for and is valid during the call.
using ShowLayer =
    std::function<void(int layer, const EvidenceNeeds& needs, const std::function<void(const LayerView&)>& body)>;

// Returns the scores of all layers and heads, one after the other.
std::vector<double> measure_scores(int n_layer, const ShowLayer& show, const EvictionOptions& options);

// Returns the statistics of all layers, by their names in the files: those of CAKE, LAVa and CriticalKV.
std::map<std::string, std::vector<double>> measure_statistics(int n_layer, const ShowLayer& show);

// Compares scores with the file's tensor score/<name>.
void compare_scores(const GoldenFile& file, const std::string& name, const EvictionOptions& options,
                    std::vector<double> actual, const Tolerance& tolerance, Tally& tally);

// Reads the options of a list. Returns false, and counts a failure, if it names a part that this build lacks.
bool read_options(const GoldenFile& file, const std::string& key, EvictionOptions& options, Tally& tally);

// Calls `body` with the name and the options of every scorer that the file has scores of.
void for_each_scorer(const GoldenFile& file, Tally& tally,
                     const std::function<void(const std::string& name, const EvictionOptions& options)>& body);

}  // namespace winnow::golden
