// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/* Reads messages, each behind its length (u32), and writes a byte for each: why it is refused. */
#include <stdio.h>
#include <stdlib.h>
#include "validate.h"

int main(void)
{
	struct ccp_msg_info info;
	uint32_t len;

	while (fread(&len, sizeof(len), 1, stdin) == 1) {
		/* Of exactly that size, so that a sanitizer sees every step beyond it. */
		u8 *msg = malloc(len);

		if (!msg || fread(msg, 1, len, stdin) != len)
			return 1;
		putchar(ccp_validate(msg, len, &info));
		free(msg);
	}
	return 0;
}
