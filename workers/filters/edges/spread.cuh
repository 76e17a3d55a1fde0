// Grey results of the edge filters as pixels of the image's number of channels.
#pragma once
#include "kernels/headers/common.cuh"
#include "kernels/headers/pixels.cuh"

// Turn four tones into four pixels; alpha is the image's.
template <int C>
__device__ __forceinline__ void grey_pixels4(const Item& item, int x, int y, u32 tones, u32* out)
{
    if constexpr (C == 1) {
        out[0] = tones;
    } else if constexpr (C == 3) {
        out[0] = __byte_perm(tones, 0, 0x1000);
        out[1] = __byte_perm(tones, 0, 0x2211);
        out[2] = __byte_perm(tones, 0, 0x3332);
    } else {
        u32 plane[C];
        pixels4<C>(source_row(item, y), item.width, x, plane);
        for (int k = 0; k < 4; ++k) out[k] = __byte_perm(tones, plane[3], 0x4000 + 0x1111 * k);
    }
}
