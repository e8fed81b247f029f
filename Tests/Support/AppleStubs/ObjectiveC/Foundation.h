// Declarations of Apple's Foundation that the Objective-C example uses, for checks of its syntax and types.
typedef signed char BOOL;
typedef long NSInteger;
typedef unsigned long NSUInteger;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
#define YES ((BOOL)1)
#define NO ((BOOL)0)
#define nil ((id)0)
__attribute__((objc_root_class)) @interface NSObject
+ (instancetype)alloc;
- (instancetype)init;
@end
@protocol NSObject
@end
@interface NSString : NSObject
- (NSString *)stringByAppendingPathComponent:(NSString *)name;
- (id)dataUsingEncoding:(NSUInteger)encoding;
@end
@interface NSConstantString : NSString
@end
enum { NSUTF8StringEncoding = 4 };
@interface NSData : NSObject
@end
@interface NSError : NSObject
@end
@interface NSDictionary : NSObject
@end
typedef struct {
    unsigned long state;
    id __unsafe_unretained *itemsPtr;
    unsigned long *mutationsPtr;
    unsigned long extra[5];
} NSFastEnumerationState;
@interface NSArray <T> : NSObject
- (NSUInteger)countByEnumeratingWithState:(NSFastEnumerationState *)state
                                  objects:(id __unsafe_unretained *)buffer
                                    count:(NSUInteger)count;
@end
@interface NSURL : NSObject
@property(readonly) NSString *path;
@end
@interface NSFileManager : NSObject
@property(class, readonly) NSFileManager *defaultManager;
- (NSURL *)containerURLForSecurityApplicationGroupIdentifier:(NSString *)group;
@end
void NSLog(NSString *format, ...);
