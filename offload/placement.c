/* placement.c: names of tiers, for messages and tables. */
#include "offload/placement.h"

const char *pen_tier_name(enum pen_tier tier)
{
  static const char *const names[PEN_TIERS] = {"device", "host", "nvme"};
  return names[tier];
}
