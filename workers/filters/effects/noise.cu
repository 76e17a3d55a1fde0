// Normally distributed noise: Philox4x32-10 (J. Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011) gives a 16-bit number for every colour sample, and a table maps the number to
// the quantile that is added. Two samples share a word.
#include "kernels/headers/common.cuh"
#include "kernels/headers/lines.cuh"

constexpr int QUANTILE_GROUP = 64, QUANTILE_GROUPS = 65536 / QUANTILE_GROUP, MOST_TAIL = 64;
constexpr u32 NOISE_LINE = 4 * LINE;  // samples a block
constexpr int MOST_QUANTILES = QUANTILE_GROUPS + 2 * MOST_TAIL * (QUANTILE_GROUP - 1);

// The key and the quantiles, which are integers and never fall. At both ends, for `tail` groups of
// 64 numbers each, every number has a quantile of its own. Between them quantiles rise at most once
// in a group, and a group has one entry: the upper ten bits are the quantile plus 256, the lowest
// six the count of numbers in the group whose quantile is one more, so that adding a number's place
// in the group carries there.
struct Noise {
    u32 key[2];
    u32 tail, reserved;
    u16 quantiles[MOST_QUANTILES];  // a whole number of 16 bytes is uploaded
};

struct Grain {
    const u8* quantiles;
    u32 before, skipped;  // distances to the groups and to the second tail, in both halves

    __device__ __forceinline__ Grain(const void* quantiles, u32 tail)
        : quantiles((const u8*)quantiles),
          before((QUANTILE_GROUP - 1) * tail * 0x10001),
          skipped((QUANTILE_GROUP - 1) * (QUANTILE_GROUPS - 2 * tail) * 0x10001)
    {
    }

    // Return the noisy levels of two samples, in bits 6 to 13 of the halves. Of the places of a
    // quantile the right one is found by a maximum and a minimum, without a branch.
    __device__ __forceinline__ u32 operator()(u32 levels, u32 numbers) const
    {
        u32 groups = (numbers >> 6 & 0x03FF03FF) + before;
        u32 places = 2 * __vmaxu2(__vminu2(numbers, groups) + skipped, numbers) - 2 * skipped;
        u32 first = *(const u16*)(quantiles + (places & 0xFFFF));
        u32 second = *(const u16*)(quantiles + (places >> 16));
        u32 sums = levels * 64 + (numbers & 0x003F003F) + first + second * 65536;
        return __vminu2(__vmaxu2(sums, 0x40004000), 0x7FFF7FFF);
    }
};

// Compute the four words of Philox for a counter.
__device__ __forceinline__ void philox(u32 counter, const u32* key, u32* words)
{
    u32 a = counter, b = 0, c = 0, d = 0;
#pragma unroll
    for (u32 step = 0; step < 10; ++step) {
        u64 first = (u64)a * 0xD2511F53u, second = (u64)c * 0xCD9E8D57u;
        a = (u32)(second >> 32) ^ b ^ (key[0] + step * 0x9E3779B9u), b = (u32)second;
        c = (u32)(first >> 32) ^ d ^ (key[1] + step * 0xBB67AE85u), d = (u32)first;
    }
    words[0] = a, words[1] = b, words[2] = c, words[3] = d;
}

// Return the noisy level of one colour sample. The function is separate because single samples are
// rare.
static __device__ __noinline__ u8 noisy_one(
    u32 level, u32 sample, const u32* key, const Grain& grain)
{
    u32 words[4];
    philox(sample / 8, key, words);
    u32 pair = sample % 8 / 2;
    u32 word = pair < 2 ? (pair ? words[1] : words[0]) : pair == 2 ? words[2] : words[3];
    return (u8)(grain(level, word >> sample % 2 * 16 & 0xFFFF) >> 6);
}

// Return four noisy samples from their numbers. Alpha, the fourth of four channels, stays, and its
// number is ignored.
template <int C>
__device__ __forceinline__ u32 noisy4(u32 word, u32 low, u32 high, const Grain& grain)
{
    u32 first = grain(__byte_perm(word, 0, 0x4140), low),
        second = grain(__byte_perm(word, 0, 0x4342), high);
    u32 made = __byte_perm(first << 2, second << 2, 0x7531);
    return C == 4 ? __byte_perm(made, word, 0x7210) : made;
}

// Add noise to the samples of a block, sixteen a thread and turn. They take two counters; with
// alpha the twelve numbers begin with the first counter or in its middle.
template <int C>
__device__ __forceinline__ void noisy_line(
    const Item& item, int block, const u32* key, const Grain& grain)
{
    u32 total = samples_of(item), end = min(total, (block + 1) * NOISE_LINE);
    const u8* src = global<const u8>(item.src);
    u8* dst = global<u8>(item.dst);
    for (u32 at = block * NOISE_LINE + 16 * threadIdx.x; at < end; at += 16 * THREADS) {
        u32 colour = C == 4 ? at / 4 * 3 : at;
        if (at + 16 > total) {
            for (u32 s = at; s < total; ++s) {
                u32 colour_sample = C == 4 ? s / 4 * 3 + s % 4 : s;
                dst[s] =
                    C == 4 && s % 4 == 3 ? src[s] : noisy_one(src[s], colour_sample, key, grain);
            }
            continue;
        }
        u32 words[4], numbers[8];
        load16(src + at, words);
        philox(colour / 8, key, numbers);
        philox(colour / 8 + 1, key, numbers + 4);
        if (C == 4 && colour % 8)
#pragma unroll
            for (int i = 0; i < 6; ++i) numbers[i] = numbers[i + 2];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if constexpr (C < 4) {
                words[i] = noisy4<C>(words[i], numbers[2 * i], numbers[2 * i + 1], grain);
            } else {
                u32 low = numbers[i / 2 * 3], middle = numbers[i / 2 * 3 + 1],
                    high = numbers[i / 2 * 3 + 2];
                words[i] = i % 2
                    ? noisy4<C>(words[i], __funnelshift_r(middle, high, 16), high >> 16, grain)
                    : noisy4<C>(words[i], low, middle, grain);
            }
        }
        store16(dst + at, words);
    }
}

extern "C" __global__ void __launch_bounds__(256) noise(const Item* items, const u32* starts, int n)
{
    __shared__ uint4 quantiles[MOST_QUANTILES / 8];
    int block;
    Item item = find_item(items, starts, n, block);
    const Noise& of = *global<const Noise>(item.data);
    u32 key[2] = {of.key[0], of.key[1]}, tail = of.tail;
    int used = (QUANTILE_GROUPS + 2 * (QUANTILE_GROUP - 1) * (int)tail + 7) / 8;
    for (int i = threadIdx.x; i < used; i += THREADS)
        quantiles[i] = ((const uint4*)of.quantiles)[i];
    __syncthreads();
    Grain grain(quantiles, tail);
    if (item.channels == 1) noisy_line<1>(item, block, key, grain);
    else if (item.channels == 3) noisy_line<3>(item, block, key, grain);
    else noisy_line<4>(item, block, key, grain);
}
LAUNCHED_BY_LINES(noise, NOISE_LINE);
