// Everything of the public interface. See examples/ for a program of forty lines.
#pragma once

#include "winnow/batch.h"
#include "winnow/entry_type.h"
#include "winnow/error.h"
#include "winnow/eviction.h"
#include "winnow/generate.h"
#include "winnow/instruction_set.h"
#include "winnow/log_softmax.h"
#include "winnow/model.h"
#include "winnow/sampling.h"
#include "winnow/session.h"
#include "winnow/version.h"
