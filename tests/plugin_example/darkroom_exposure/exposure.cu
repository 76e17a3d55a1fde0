// min(255, floor(x · factor + 0.5)) for every colour sample x; alpha is copied.
#include "kernels/headers/common.cuh"
#include "kernels/headers/lines.cuh"

extern "C" __global__ void __launch_bounds__(256)
    exposure(const Item* items, const u32* starts, int n)
{
    __shared__ u8 table[256];
    int block;
    Item item = find_item(items, starts, n, block);
    double factor = *global<const double>(item.data);
    table[threadIdx.x] = min(255.0, floor(threadIdx.x * factor + 0.5));
    __syncthreads();
    map_samples(item, block, table);
}
LAUNCHED_BY_LINES(exposure, LINE);
