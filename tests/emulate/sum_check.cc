/* sum_check.cc - a thread's sum in turns, of the cuda headers on the cpu: of any number of terms it is the sum, and of
 * 64 near one it errs by less than a third of what one after the other does, over a thousand draws.  Prints how many
 * are wrong. */
#include "device.h"

#define IX64_ 0
#include <ww/planner.cuh>

#include <cstdio>
#include <random>

int main()
{
	std::mt19937 random(1);
	std::uniform_real_distribution<float> near(0.98f, 1.0f);
	double in_turns = 0, in_order = 0;
	int bad = 0;

	for (int n = 0; n < 20; n++) {
		pl_turns<8> s;

		for (int i = 1; i <= n; i++)
			s.add((float)i);
		bad += s.result() != (float)(n * (n + 1) / 2);
	}
	for (int draw = 0; draw < 1000; draw++) {
		pl_turns<8> s;
		float one = 0;
		double exact = 0;

		for (int i = 0; i < 64; i++) {
			const float x = near(random);

			s.add(x);
			one += x;
			exact += x;
		}
		in_turns += (s.result() - exact) * (s.result() - exact);
		in_order += (one - exact) * (one - exact);
	}
	bad += 9 * in_turns > in_order;
	printf("%d\n", bad);
}
