/* engine_ram.h: what tests ask of the engine `ram` beyond the table. */
#ifndef PEN_IO_ENGINE_RAM_H
#define PEN_IO_ENGINE_RAM_H

/* Removes every file: this process's memory as after a restart.  Files that
 * are open stay until closed. */
void pen_engine_ram_forget(void);

#endif
