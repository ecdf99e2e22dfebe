// The functions behind the table of metrics. They score an answer against one reference, or against a turn with all of
// its references.
#pragma once

#include <vector>

#include "eval/python_str.h"
#include "eval/sample.h"

namespace winnow::eval {

// token_f1.cc: returns F1 of two bags of words, 0 if they have no word in common.
double bag_f1(const std::vector<Text>& answer, const std::vector<Text>& truth);
double token_f1(TextView answer, TextView truth);              // LongBench f1
double chinese_f1(TextView answer, TextView truth);            // LongBench f1_zh
double chinese_character_f1(TextView answer, TextView truth);  // InfiniteBench longbook_qa_chn

// rouge_l.cc: ROUGE-L of the package rouge 1.0.1; the Chinese one joins words by spaces first.
double rouge_l(TextView answer, TextView truth);
double chinese_rouge_l(TextView answer, TextView truth);

// rouge_score.cc: scores of the package rouge_score 0.1.2.
double rouge1_stemmed(TextView answer, TextView truth);  // words stemmed by Porter's method
double rouge_l_sum(TextView answer, TextView truth);

// line_similarity.cc: returns fuzz.ratio of the first line of code, in [0, 1].
double line_similarity(TextView answer, TextView truth);
// Returns 0 to 100 as fuzzywuzzy does without its C extension: with Python's difflib, its junk in long texts included.
int fuzzy_ratio(TextView a, TextView b);

// numbers.cc
double share_of_numbers(TextView answer, TextView truth);      // passage_count: the truth is a number
double share_of_paragraphs(TextView answer, TextView truth);   // passage_retrieval: "Paragraph 12", "段落12"
double first_digits(const Turn& turn, TextView answer);        // passkey, number_string
double last_integer(const Turn& turn, TextView answer);        // code_run
double first_number(const Turn& turn, TextView answer);        // math_find
double first_number_whole(const Turn& turn, TextView answer);  // SCBench math_find: truncated if the reference is whole
double leading_numbers(const Turn& turn, TextView answer);     // math_calc

// containment.cc
double classification(const Turn& turn, TextView answer);       // LongBench class, with turn.classes
double share_contained(const Turn& turn, TextView answer);      // RULER
double any_contained(const Turn& turn, TextView answer);        // RULER qa
double share_contained_2(const Turn& turn, TextView answer);    // SCBench vt: to two decimals
double any_contained_upper(const Turn& turn, TextView answer);  // SCBench qa_eng, many_shot
double first_contained(const Turn& turn, TextView answer);      // SCBench kv; NeedleBench: the keyword, case-sensitive
double share_contained_exact(const Turn& turn, TextView answer);  // NeedleBench: several keywords
double word_among(const Turn& turn, TextView answer);             // kv_retrieval
double upper_word_among(const Turn& turn, TextView answer);       // longdialogue_qa_eng

// choices.cc: references are the text of the right answer and its letter (code_debug: the function's name first).
double multiple_choice(const Turn& turn, TextView answer);
double multiple_choice_stripped(const Turn& turn, TextView answer);  // SCBench strips the answer first
double faulty_function(const Turn& turn, TextView answer);
double boxed(const Turn& turn, TextView answer);  // NeedleBench reasoning: the last \boxed{...}

// bleu.cc
// Returns BLEU-4 of the words between white space, smoothed by method 4 of Chen and Cherry as in NLTK.
double bleu(TextView answer, TextView truth);
double best_function(const Turn& turn, TextView answer);  // SCBench repoqa: turn.classes are the repository's functions

}  // namespace winnow::eval
